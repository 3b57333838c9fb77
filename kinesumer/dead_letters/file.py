"""Dead letters in a file: one JSON object a line, on the disk before ``put`` returns.

Any number of processes may append. Who writes holds a lock on the file; a rewrite puts
a new file in its place, so that who waited for the lock looks again which file it is.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kinesumer.dead_letters.base import StoredEntry
from kinesumer.dead_letters.letter import decode_letter, encode_letter
from kinesumer.errors import (
    ConfigurationError,
    CorruptDeadLetterError,
    FatalError,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.files import sync_directory, write_all, write_atomically

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from kinesumer.dead_letters.letter import DeadLetter


class FileLetters:
    """Keeps letters in a file, which is made with the first one."""

    removes = True

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def put(self, letter: DeadLetter) -> None:
        """Append a letter and sync it. Raises FatalError if the disk won't have it."""
        await asyncio.to_thread(self._append, encode_letter(letter))

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Go through the lines; one that can't be read is told, and stays."""
        for number, line in enumerate(await asyncio.to_thread(self._lines), 1):
            try:
                if line.strip():
                    yield StoredEntry(line, decode_letter(line))
            except CorruptDeadLetterError as error:
                yield StoredEntry(line, None, f"line {number}: {error}")

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Write the file anew without these lines, whole or not at all."""
        gone = frozenset(one.receipt for one in stored)
        await asyncio.to_thread(self._rewrite, gone)

    async def aclose(self) -> None:
        """Nothing is held open."""

    def _append(self, line: bytes) -> None:
        try:
            with _locked(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
                size = os.fstat(file).st_size
                # What a crash left of a line must not swallow this one.
                torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
                try:
                    write_all(file, (b"\n" if torn else b"") + line + b"\n")
                    os.fsync(file)
                except OSError:
                    os.ftruncate(file, size)
                    raise
                if size == 0:
                    sync_directory(self._path)
        except OSError as error:
            raise FatalError(
                f"a dead letter can't be written to {self._path}: {error.strerror}"
            ) from error

    def _lines(self) -> list[bytes]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            logger.warning(
                "%s: no such file, so no letter was stored there", self._path
            )
            return []
        except OSError as error:
            raise ConfigurationError(
                f"{self._path} can't be read: {error.strerror}"
            ) from error
        return content.split(b"\n")

    def _rewrite(self, gone: frozenset[object]) -> None:
        try:
            with _locked(self._path, os.O_RDONLY) as file:
                found = (line for line in self._lines() if line.strip())
                kept = [line for line in found if line not in gone]
                mode = os.fstat(file).st_mode & 0o777
                write_atomically(
                    self._path, b"".join(line + b"\n" for line in kept), mode
                )
        except OSError as error:
            raise FatalError(
                f"{self._path} can't be written anew: {error.strerror}"
            ) from error


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    """Open a file and lock it, until the lock is on what the path names."""
    while True:
        file = os.open(path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if _is_named(file, path):
                yield file
                return
        finally:
            os.close(file)


def _is_named(file: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)
