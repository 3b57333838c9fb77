"""Draw a report again and again in place, until the user quits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rich.live import Live

from kinesumer.errors import TransientError
from kinesumer.ops.cli.console import PipeConsole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rich.console import RenderableType

T = TypeVar("T")

# q, and the character that Ctrl-D sends in cbreak mode.
QUIT_KEYS = b"qQ\x04"


async def watch(
    first: T,
    read: Callable[[], Awaitable[T]],
    draw: Callable[[T, str], RenderableType],
    interval_seconds: float,
) -> None:
    """Draw a report over the last one, until the user presses q.

    If a read fails, the last report stays, and ``draw`` gets the error's text.
    """
    quit_, latest = asyncio.Event(), (first, "")
    with _screen(lambda: draw(*latest)) as show, _read_keys(quit_.set):

        async def redraw() -> None:
            nonlocal latest
            while True:
                show()
                await asyncio.sleep(interval_seconds)
                try:
                    latest = await read(), ""
                except TransientError as error:
                    latest = latest[0], f"{error}; trying again"

        tasks = [asyncio.create_task(redraw()), asyncio.create_task(quit_.wait())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def _screen(picture: Callable[[], RenderableType]) -> Iterator[Callable[[], None]]:
    """Fill the terminal while the block runs. Yield a function that draws again."""
    loop = asyncio.get_running_loop()
    live = Live(
        get_renderable=picture,
        console=PipeConsole(),
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    with live:
        loop.add_signal_handler(signal.SIGWINCH, live.refresh)
        try:
            yield live.refresh
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _read_keys(quit_: Callable[[], None]) -> Iterator[None]:
    """Read single keys while the block runs. Ctrl-C still interrupts the command."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)

    def on_readable() -> None:
        keys = os.read(keyboard, 64)
        # Empty input means that the terminal was closed.
        if not keys or any(key in QUIT_KEYS for key in keys):
            quit_()

    # Unlike in raw mode, the terminal still sends SIGINT on Ctrl-C in cbreak mode.
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
