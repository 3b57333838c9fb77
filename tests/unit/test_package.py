"""What ``import kinesumer`` gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kinesumer


@pytest.mark.parametrize("name", ["blocking", "dead_letters", "local"])
def test_public_subpackages_are_there_when_they_are_named(name: str) -> None:
    program = (
        "import sys, kinesumer;"
        f"assert 'kinesumer.{name}' not in sys.modules;"
        f"print(kinesumer.{name}.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"kinesumer.{name}\n"


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kinesumer.nothing  # type: ignore[attr-defined]


def test_all_public_names_are_there_when_they_are_named() -> None:
    assert set(kinesumer.__all__) <= set(dir(kinesumer))
    for name in kinesumer.__all__:
        assert getattr(kinesumer, name).__name__ == name


def test_what_spark_starts_for_planning_imports_little() -> None:
    """Spark starts several processes for each query: only one plans its batches."""
    pytest.importorskip("pyspark")
    program = (
        "import sys, kinesumer.spark.source, kinesumer.spark.readers;"
        "import kinesumer.spark.readers;"
        "print(*sorted({'aiobotocore', 'aiohttp', 'botocore', 'kinesumer.client',"
        " 'kinesumer.coordination.group', 'kinesumer.spark.planning.driver'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"
