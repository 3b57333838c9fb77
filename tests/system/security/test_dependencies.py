"""Test that every installed package is pinned by its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = tomllib.loads((ROOT / "uv.lock").read_text())["package"]


def test_every_package_is_pinned_to_files_of_pypi_and_their_hashes() -> None:
    others = [package for package in PACKAGES if package["name"] != "kinesumer"]

    assert len(others) == len(PACKAGES) - 1
    for package in others:
        assert package["source"] == {"registry": "https://pypi.org/simple"}
        files = package.get("wheels", []) + [
            package[key] for key in {"sdist"} & {*package}
        ]
        assert files
        for file in files:
            assert file["url"].startswith("https://files.pythonhosted.org/")
            assert re.fullmatch(r"sha256:[0-9a-f]{64}", file["hash"])


def test_sparks_jars_are_pinned_by_their_checksums() -> None:
    jars = (ROOT / "scripts" / "delta-jars.sha256").read_text().splitlines()

    assert jars
    assert all(
        re.fullmatch(r"[0-9a-f]{64}  [^ :]+:[^ :]+:[0-9.]+", jar) for jar in jars
    )
