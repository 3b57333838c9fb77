"""Test that every installed package is pinned by its hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

LOCKS = sorted((Path(__file__).parents[3] / "requirements").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_package_is_pinned_to_a_version_and_its_hashes(lock: Path) -> None:
    requirements = lock.read_text().replace("\\\n", "").splitlines()

    assert requirements
    for requirement in requirements:
        pinned = (
            r"[a-z0-9.-]+(\[[a-z,]+\])?==\S+( ; .+?)? +(--hash=sha256:[0-9a-f]{64} *)+"
        )
        assert re.fullmatch(pinned, requirement)


def test_sparks_jars_are_pinned_by_their_checksums() -> None:
    jars = (LOCKS[0].parent / "delta-jars.sha256").read_text().splitlines()

    assert jars
    assert all(
        re.fullmatch(r"[0-9a-f]{64}  [^ :]+:[^ :]+:[0-9.]+", jar) for jar in jars
    )
