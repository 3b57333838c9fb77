"""Standard output as the place of records and of nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

TICK_SECONDS = 1.0
PIECE_BYTES = 4096
"""A pipe that is ready takes this much without blocking."""


class ClosedOutputError(Exception):
    """Whoever read the output has gone."""


class Output:
    """Takes standard output for itself: what others print goes to standard error.

    Waits for a slow reader without blocking the event loop.
    """

    def __enter__(self) -> Output:
        sys.stdout.flush()
        self._file = os.dup(1)
        os.dup2(2, 1)
        self._stdout, sys.stdout = sys.stdout, sys.stderr
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stdout = self._stdout
        os.dup2(self._file, 1)
        os.close(self._file)

    async def write(self, data: bytes) -> None:
        """Write all of it. Raises ClosedOutputError."""
        rest = memoryview(data)
        try:
            while rest:
                await self._ready()
                rest = rest[os.write(self._file, rest[:PIECE_BYTES]) :]
        except BrokenPipeError:
            raise ClosedOutputError from None

    def check(self) -> None:
        """Notice that the reader has gone though there is nothing to write.

        Raises ClosedOutputError.
        """
        poll = select.poll()
        poll.register(self._file, 0)
        if any(
            events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)
        ):
            raise ClosedOutputError

    async def keep_ticking(
        self, tick: Callable[[], bytes], closed: Callable[[], object]
    ) -> None:
        """Write what is due each second, until the reader has gone: tell of that."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                await self.write(tick())
                self.check()
            except ClosedOutputError:
                closed()
                return

    async def _ready(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_writer(self._file, _set, ready)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            return  # a file is always ready
        try:
            await ready
        finally:
            loop.remove_writer(self._file)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
