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
