"""Store dead letters in a file, with one JSON object per line.

Any number of processes may append letters. A writer holds a lock on the file. Removing
letters replaces the file, so a process that has waited for the lock opens the path
again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kinesumer.errors import ConfigurationError, DeadLettersUnavailableError, FatalError
from kinesumer.handlers.dead_letters.letter import (
    DeadLetter,
    ReadableDeadLetters,
    StoredEntry,
    encode_letter,
    read_entry,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.files import sync_directory, write_all, write_atomically
from kinesumer.runtime.threads import Threads, is_refusal


class FileLetters(ReadableDeadLetters):
    """Stores letters in a file, which the first letter creates."""

    removes = True

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._threads = Threads(1, "kinesumer-dead-letters")

    async def put(self, letter: DeadLetter) -> None:
        """Append a letter and sync the file. Raises FatalError if that fails.

        Raises DeadLettersUnavailableError if the system refuses a file descriptor.
        """
        await self._threads.call(partial(self._append, encode_letter(letter)))

    async def read(self) -> AsyncIterator[StoredEntry]:
        """Yield an entry for each line that isn't blank."""
        for number, line in enumerate(await self._threads.call(self._lines), 1):
            if line.strip():
                yield read_entry(line, line, f"line {number}")

    async def remove(self, stored: Sequence[StoredEntry]) -> None:
        """Replace the file by one without these lines."""
        gone = frozenset(one.receipt for one in stored)
        await self._threads.call(partial(self._rewrite, gone))

    async def aclose(self) -> None:
        """End the thread."""
        self._threads.close()

    def _append(self, line: bytes) -> None:
        try:
            with _locked(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
                size = os.fstat(file).st_size
                # A crash may have left an incomplete line. Start a new line after it.
                torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
                try:
                    write_all(file, (b"\n" if torn else b"") + line + b"\n")
                    os.fsync(file)
                except OSError:
                    # Remove the part of the line that was written before the disk was
                    # full.
                    os.ftruncate(file, size)
                    raise
                if size == 0:
                    # If the directory isn't synced, a crash of the machine may lose the
                    # new file's name.
                    sync_directory(self._path)
        except OSError as error:
            if is_refusal(error):
                raise DeadLettersUnavailableError(f"{self._path}: {error}") from error
            raise FatalError(
                f"a dead letter can't be written to {self._path}: {error.strerror}; "
                "check the path and the disk"
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
                f"{self._path} can't be read: {error.strerror}; check its permissions"
            ) from error
        return content.split(b"\n")

    def _rewrite(self, gone: frozenset[object]) -> None:
        try:
            with _locked(self._path, os.O_RDONLY) as file:
                lines = [n for n in self._lines() if n.strip() and n not in gone]
                content = b"".join(line + b"\n" for line in lines)
                mode = os.fstat(file).st_mode & 0o777
                write_atomically(self._path, content, mode)
        except OSError as error:
            raise FatalError(
                f"{self._path} can't be rewritten: {error.strerror}; check the path "
                "and the disk"
            ) from error


@contextmanager
def _locked(path: Path, flags: int) -> Iterator[int]:
    """Open a file and lock it; try again if another file has replaced it."""
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
