"""Test what the build adds to a wheel, with a C compiler and without one."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

pytest.importorskip("hatchling")
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
HEADER = Path(sysconfig.get_paths()["include"], "Python.h")
MODULE = f"kinesumer/wire/_native{sysconfig.get_config_var('EXT_SUFFIX')}"


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build a version that does not depend on the tags of this checkout."""
    monkeypatch.setenv("SETUPTOOLS_SCM_PRETEND_VERSION", "1.0")


def build(directory: Path) -> Path:
    [wheel] = WheelBuilder(str(ROOT)).build(
        directory=str(directory), versions=["standard"]
    )
    return Path(wheel)


def native_files(wheel: Path) -> list[str]:
    with ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if "_native" in name]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("cc") is None or not HEADER.exists(), reason="no C compiler"
)
def test_a_wheel_has_the_compiled_decoder(tmp_path: Path) -> None:
    wheel = build(tmp_path)
    assert native_files(wheel) == [MODULE]
    assert "-none-any" not in wheel.name


def test_a_wheel_is_for_any_machine_if_there_is_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    wheel = build(tmp_path)
    assert native_files(wheel) == []
    assert wheel.name.endswith("-py3-none-any.whl")
