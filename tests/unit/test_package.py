"""Test the names that ``import kinesumer`` provides, and the modules that it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kinesumer


def run(program: str) -> str:
    """Return the output of a program in a new interpreter."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_slow_modules_are_loaded_when_they_are_used() -> None:
    modules = "opentelemetry botocore aiobotocore aiohttp moto".split()
    subpackages = ("blocking", "dead_letters", "local", "testing")
    modules += [f"kinesumer.{name}" for name in subpackages]
    program = (
        "import sys, kinesumer;"
        f"assert sys.modules.keys().isdisjoint({modules}), sorted(sys.modules);"
        f"print(*(getattr(kinesumer, name).__name__ for name in {subpackages}))"
    )
    assert run(program).split() == modules[-4:]


def test_the_pytest_plugin_loads_nothing_that_pytest_has_not_loaded() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules);"
        "import kinesumer.testing.plugin; print(*sorted(set(sys.modules) - before))"
    )
    assert run(program).split() == [
        "kinesumer",
        "kinesumer.testing",
        "kinesumer.testing.plugin",
    ]


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kinesumer.nothing  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = kinesumer.testing.nothing  # type: ignore[attr-defined]


def test_all_public_names_are_there_when_they_are_named() -> None:
    assert set(kinesumer.__all__) <= set(dir(kinesumer))
    for name in kinesumer.__all__:
        assert getattr(kinesumer, name).__name__ == name


def test_what_spark_starts_for_planning_imports_little() -> None:
    """Spark starts several processes for a query; only one of them plans batches."""
    pytest.importorskip("pyspark")
    program = (
        "import sys, kinesumer.spark.source, kinesumer.spark.readers;"
        "print(*sorted({'aiobotocore', 'aiohttp', 'botocore', 'kinesumer.client',"
        " 'kinesumer.coordination.group', 'kinesumer.spark.planning.driver'}"
        " & set(sys.modules)))"
    )
    assert run(program) == "\n"
