"""Test the warning about several loads of one Spark application."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from kinesumer.spark.runtime.loads import FILE, warn_of_other_loads

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_load_warns_of_another_one_that_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"SPARK_LOCAL_DIRS": f"{tmp_path},/elsewhere"}
    warn_of_other_loads(["orders"], environment)
    assert not caplog.records
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE
    ) as other:
        with (tmp_path / FILE).open("a") as file:
            file.write(f"{other.pid} payments, refunds\n")
        warn_of_other_loads(["orders"], environment)
        other.communicate(b"\n")
    assert "through another load() (payments, refunds)" in caplog.text
    caplog.clear()
    warn_of_other_loads(["orders"], environment)
    assert not caplog.records


def test_without_a_directory_of_the_application_nothing_is_noted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_other_loads(["orders"], {})
    warn_of_other_loads(["orders"], {"SPARK_LOCAL_DIRS": str(tmp_path / "gone")})
    assert not caplog.records
    assert not list(tmp_path.iterdir())
