"""Where the picture is drawn: a terminal, in place; or lines, one picture below the
other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group
from rich.live import Live

from kinesumer.cli.terminal_view.drawing import Frame, draw
from kinesumer.cli.terminal_view.glyphs import ASCII, Glyphs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesumer.dashboard.model import State

QUIT = b"qQ\x04"
"""q, and what Ctrl-D sends while lines aren't edited."""
WIDE = 120
"""Columns where the output is no terminal."""


class Screen(Protocol):
    """Shows states, one after the other."""

    def show(self, state: State) -> None:
        """Show how things are now."""
        ...


@contextmanager
def screen(quit_: Callable[[], None]) -> Iterator[Screen]:
    """Give the screen that the output allows, and leave the terminal as it was.

    ``quit_`` is called when somebody presses q, where somebody can.
    """
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        with _keys(quit_), _in_place(console) as shown:
            yield shown
    else:
        width = None if console.is_terminal else WIDE
        yield _Below(Console(width=width))


def glyphs_for(console: Console) -> Glyphs:
    """Return what a console can show: letters fill what colours can't."""
    if console.options.ascii_only or console.is_dumb_terminal:
        return ASCII
    has_colours = console.color_system is not None and not console.no_color
    return Glyphs(fill=not has_colours)


class _Below:
    """Every picture in full, beneath the one before."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, state: State) -> None:
        frame = Frame(self._console.width, None, glyphs_for(self._console))
        for line in (*draw(state, frame), ""):
            self._console.print(line, crop=True, overflow="crop", highlight=False)


class _InPlace:
    """The newest picture, as large as the terminal is."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console, self._live = console, live
        self._state: State | None = None

    def show(self, state: State) -> None:
        self._state = state
        self.again()

    def again(self) -> None:
        """Draw the last state for the size that the terminal has now."""
        if self._state is None:
            return
        width, height = self._console.size
        lines = draw(self._state, Frame(width, height, glyphs_for(self._console)))
        self._live.update(Group(*lines), refresh=True)


@contextmanager
def _in_place(console: Console) -> Iterator[_InPlace]:
    loop = asyncio.get_running_loop()
    live = Live(
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    with live:
        shown = _InPlace(console, live)
        loop.add_signal_handler(signal.SIGWINCH, shown.again)
        try:
            yield shown
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _keys(quit_: Callable[[], None]) -> Iterator[None]:
    """Read keys as they are pressed. Ctrl-C stays what it is."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)

    def pressed() -> None:
        keys = os.read(keyboard, 64)
        if not keys or any(key in QUIT for key in keys):
            quit_()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, pressed)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
