"""What reports for people have in common: its width, and the text of others."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


WIDE = 200
"""Columns where the output is no terminal: nothing is cut off in a file."""


NARROW = 140
"""Columns of a narrower terminal: it wraps lines, where names would be cut off."""


def console() -> Console:
    """Return where reports are printed."""
    there = Console()
    width = max(there.width, NARROW) if there.is_terminal else WIDE
    return Console(width=width)


def plain(text: str, style: str = "") -> Text:
    """Return text as it is: a name in brackets is no markup, an escape no escape."""
    return Text(escape_unprintable(text), style=style)


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
