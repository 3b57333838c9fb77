"""Test what the hook of the build adds to the package's metadata."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("hatchling")
ROOT = Path(__file__).parents[2]
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
        file = place.removeprefix(URL).removeprefix("/blob/HEAD").partition("#")[0]
        assert file in ("", "/issues") or (ROOT / file[1:]).exists(), place


def test_a_build_elsewhere_has_no_links_to_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KINESUMER_REPOSITORY_URL", raising=False)
    made = metadata()
    assert "urls" not in made
    assert [place for place in targets(made) if not place.startswith("https:")] == []
    assert "stored as a dead letter" in made["readme"]["text"]
