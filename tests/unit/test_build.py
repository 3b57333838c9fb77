"""Test what the hooks of the build add to a wheel and to the package's metadata."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sysconfig
from pathlib import Path
from typing import Any
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


# --- metadata ---

URL = "https://github.com/owner/kinesumer"


def metadata() -> dict[str, Any]:
    """Return what the hook sets."""
    path = ROOT / "scripts" / "package_metadata.py"
    spec = importlib.util.spec_from_file_location("package_metadata", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, Any] = {}
    module.RepositoryMetadata(str(ROOT), {}).update(made)
    return made


def targets(made: dict[str, Any]) -> list[str]:
    """Return the targets of the links of the long description."""
    return re.findall(r"\]\(([^)]*)\)", made["readme"]["text"])


def test_a_release_has_absolute_links_to_files_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KINESUMER_REPOSITORY_URL", f"{URL}/")
    made = metadata()
    places = [*targets(made), *made["urls"].values()]
    assert len(places) > 20
    for place in places:
        assert place.startswith(URL)
        path = place.removeprefix(URL).partition("#")[0]
        file = re.sub("^/(blob|raw)/HEAD", "", path)
        assert file in ("", "/issues") or (ROOT / file[1:]).exists(), place


def test_pictures_of_a_release_are_files_and_not_pages_about_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KINESUMER_REPOSITORY_URL", URL)
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]*)\)", metadata()["readme"]["text"])
    assert pictures
    for picture in pictures:
        assert picture.startswith(f"{URL}/raw/HEAD/")


def test_a_build_elsewhere_has_no_links_to_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KINESUMER_REPOSITORY_URL", raising=False)
    made = metadata()
    assert "urls" not in made
    assert [place for place in targets(made) if not place.startswith("https:")] == []
    assert "stored as a dead letter" in made["readme"]["text"]
    assert "![" not in made["readme"]["text"]
