"""Lines of standard input or of a file, read on a thread of their own."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Self

from kinesumer.admin.produce import MAX_LINE_BYTES
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PIECE_BYTES = 1 << 18
STDIN = 0


class Splitter:
    """Cuts pieces into lines; of one that is too long only the beginning is kept."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def lines(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in this piece, or at its end if it is empty."""
        if not piece:
            return [self._ended()] if self._begun else []
        *whole, rest = piece.split(b"\n")
        if whole:
            self._add(whole[0])
            whole[0] = self._ended()
        self._add(rest)
        return whole

    def _add(self, part: bytes) -> None:
        # One byte more, which tells that it was too long.
        self._begun += part[: MAX_LINE_BYTES + 1 - len(self._begun)]

    def _ended(self) -> bytes:
        line = bytes(self._begun)
        self._begun.clear()
        return line


class Lines:
    """Yields the lines that are there, until the end of the file or ``stop()``.

    A terminal or a pipe that says nothing can't be interrupted: a daemon thread waits
    for it, and ends with the process.
    """

    def __init__(self, path: str | None) -> None:
        try:
            self._file = STDIN if path is None else os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ConfigurationError(f"{path}: {error.strerror}") from error
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(0)
        self._found: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._splitter = Splitter()
        self._ended = False
        threading.Thread(target=self._read, name="input", daemon=True).start()

    def stop(self) -> None:
        """End after the last line that was read to its end."""
        self._found.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        if self._ended:
            raise StopAsyncIteration
        self._wanted.release()
        piece = await self._found.get()
        if isinstance(piece, OSError):
            raise ConfigurationError(f"the input can't be read: {piece.strerror}")
        if piece is None:
            raise StopAsyncIteration
        self._ended = not piece
        return self._splitter.lines(piece)

    def _read(self) -> None:
        for piece in self._pieces():
            try:
                self._loop.call_soon_threadsafe(self._found.put_nowait, piece)
            except RuntimeError:
                return  # the loop has ended: nobody wants it any more

    def _pieces(self) -> Iterator[bytes | OSError]:
        # No buffered reader: the interpreter couldn't end while a thread waits in one.
        piece = b"?"
        while piece:
            self._wanted.acquire()
            try:
                piece = os.read(self._file, PIECE_BYTES)
            except OSError as error:
                yield error
                return
            yield piece
        if self._file != STDIN:
            os.close(self._file)
