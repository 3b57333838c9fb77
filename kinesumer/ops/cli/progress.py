"""Show on a terminal that a command is still working, and for how long."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Most steps end sooner, and then nothing is shown.
DELAY_SECONDS = 1.0
FRAME_SECONDS = 0.1
FRAMES = "|/-\\"
CLEAR_LINE = "\r\x1b[K"


@asynccontextmanager
async def progress(text: str | Callable[[], str]) -> AsyncIterator[None]:
    """Show ``text`` and the elapsed seconds if the block takes longer than a second.

    A function is called for each frame. The line is written to standard error, only if
    that is a terminal, and is removed at the end. The block must not ask questions, and
    must write to the terminal only by ``print_above()``.
    """
    if not _is_shown():
        yield
        return
    task = asyncio.create_task(_draw(text))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()  # raises the error of a closed terminal


def print_above(text: str) -> None:
    """Print a line to standard error, in place of the line of ``progress()``."""
    _write(f"{CLEAR_LINE if _is_shown() else ''}{text}\n")


def _is_shown() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


async def _draw(text: str | Callable[[], str]) -> None:
    began = time.monotonic()
    await asyncio.sleep(DELAY_SECONDS)
    try:
        while True:
            for frame in FRAMES:
                seconds = int(time.monotonic() - began)
                shown = text if isinstance(text, str) else text()
                line = f"{frame} {shown} … {seconds} s"
                _write(CLEAR_LINE + line[: get_terminal_size().columns - 1])
                await asyncio.sleep(FRAME_SECONDS)
    finally:
        _write(CLEAR_LINE)


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
