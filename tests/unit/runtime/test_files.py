"""Test that a replaced file keeps its owner, and that a failure changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kinesumer.errors import FatalError
from kinesumer.handlers.dead_letters.file import FileLetters
from kinesumer.runtime.files import write_atomically
from tests.support.letters import LETTER

OTHER = 12_345  # the id of another user, and of a group


class Owners:
    """Stands for the system's owners of files, which only root may change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_root: bool) -> None:
        self.given: list[tuple[int, int]] = []
        self._is_root = is_root
        real = os.fstat

        def fstat(file: int) -> os.stat_result:
            # A new file belongs to another user than the old one.
            values = list(real(file))
            values[4] += OTHER
            return os.stat_result(values)

        monkeypatch.setattr(os, "fstat", fstat)
        monkeypatch.setattr(os, "fchown", self._fchown)

    def _fchown(self, _: int, user: int, group: int) -> None:
        if not self._is_root:
            raise PermissionError(1, "Operation not permitted")
        self.given.append((user, group))


def test_a_file_that_root_replaces_keeps_its_owner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    owners = Owners(monkeypatch, is_root=True)
    write_atomically(path, b"new", 0o600)
    assert path.read_bytes() == b"new"
    assert owners.given == [(os.getuid(), path.stat().st_gid)]
    write_atomically(tmp_path / "other", b"new", 0o600)
    assert len(owners.given) == 1


def test_a_file_of_another_user_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    Owners(monkeypatch, is_root=False)
    with pytest.raises(PermissionError):
        write_atomically(path, b"new", 0o600)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


async def test_letters_of_another_user_are_not_removed_by_one_without_rights(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "letters"
    letters = FileLetters(str(path))
    await letters.put(LETTER)
    content = path.read_bytes()
    stored = [one async for one in letters.read()]
    Owners(monkeypatch, is_root=False)
    with pytest.raises(FatalError, match="can't be rewritten: Operation not permitted"):
        await letters.remove(stored)
    await letters.aclose()
    assert path.read_bytes() == content
