"""Lines of standard input or of a file, read on a thread."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Self

from kinesumer.admin.produce import MAX_LINE_BYTES
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHUNK_BYTES = 1 << 18
STDIN = 0


class LineSplitter:
    """Splits chunks into lines. Keeps only the beginning of a line that is too long."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def lines(self, chunk: bytes) -> list[bytes]:
        """Return the lines that end in this chunk. An empty chunk ends the last."""
        if not chunk:
            return [self._take_line()] if self._partial else []
        *complete, rest = chunk.split(b"\n")
        if complete:
            self._append(complete[0])
            complete[0] = self._take_line()
        self._append(rest)
        return complete

    def _append(self, part: bytes) -> None:
        # One byte more than allowed shows the parser that the line is too long.
        self._partial += part[: MAX_LINE_BYTES + 1 - len(self._partial)]

    def _take_line(self) -> bytes:
        line = bytes(self._partial)
        self._partial.clear()
        return line


class InputLines:
    """Yields lines in portions, until the end of the file or ``stop()``.

    A read from a silent terminal or pipe can't be interrupted. So a daemon thread
    reads, and ends with the process.
    """

    def __init__(self, path: str | None) -> None:
        try:
            self._file = STDIN if path is None else os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ConfigurationError(
                f"can't read {path}: {error.strerror}; pass a readable file"
            ) from error
        self._loop = asyncio.get_running_loop()
        self._requests = threading.Semaphore(0)
        self._chunks: asyncio.Queue[bytes | OSError | None] = asyncio.Queue()
        self._splitter = LineSplitter()
        self._ended = False
        threading.Thread(target=self._read, name="input", daemon=True).start()

    def stop(self) -> None:
        """End after the last complete line."""
        self._chunks.put_nowait(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[bytes]:
        if self._ended:
            raise StopAsyncIteration
        self._requests.release()
        chunk = await self._chunks.get()
        if isinstance(chunk, OSError):
            raise ConfigurationError(
                f"can't read the input: {chunk.strerror}; pass a readable file"
            )
        if chunk is None:
            raise StopAsyncIteration
        self._ended = not chunk
        return self._splitter.lines(chunk)

    def _read(self) -> None:
        for chunk in self._read_chunks():
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop is closed: the command has ended

    def _read_chunks(self) -> Iterator[bytes | OSError]:
        # No buffered reader: the interpreter couldn't exit while a thread waits in it.
        chunk = b"?"
        while chunk:
            self._requests.acquire()
            try:
                chunk = os.read(self._file, CHUNK_BYTES)
            except OSError as error:
                yield error
                return
            yield chunk
        if self._file != STDIN:
            os.close(self._file)
