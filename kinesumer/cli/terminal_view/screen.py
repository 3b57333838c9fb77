"""Draw a fleet in a terminal, in place; or elsewhere, one picture below the other."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from rich.console import Console, Group
from rich.live import Live

from kinesumer.admin.lag import Lags
from kinesumer.admin.snapshot import read_known_snapshot
from kinesumer.cli.terminal_view.drawing import Frame, draw
from kinesumer.cli.terminal_view.glyphs import ASCII, Glyphs
from kinesumer.dashboard.model import State
from kinesumer.dashboard.poller import Poller, StoreFleetSource, StreamMeasurements
from kinesumer.dashboard.view_model import DashboardInfo
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from kinesumer.admin.connect import Roles
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.cli.options import CommonOptions

QUIT_KEYS = b"qQ\x04"
"""q, and what Ctrl-D sends while the terminal doesn't edit lines."""
FILE_COLUMNS = 120
"""Width where the output isn't a terminal."""


class StoredRowsOnly(StoreFleetSource):
    """A fleet that is read from the state store only, without calls to Kinesis."""

    async def measure(self, found: Snapshot) -> StreamMeasurements:
        """Return no measurements."""
        return StreamMeasurements(Lags({}, {}), {})


async def watch(common: CommonOptions, roles: Roles) -> None:
    """Draw an app's fleet until the user quits.

    Raises KinesumerError if the first read fails. A later failure is shown, and the
    read is retried.
    """
    app, table = common.app, common.table
    async with common.connect() as (clients, store):
        await read_known_snapshot(store, app, table)
        clock = SystemClock()
        fleet_type = StoreFleetSource if common.lag else StoredRowsOnly
        fleet = fleet_type(app, clients, store, clock, roles)
        poller = Poller(DashboardInfo(app, table, clients.region or ""), fleet, clock)
        quit_ = asyncio.Event()
        with open_screen(quit_.set) as screen:
            await _run_until_one_ends(
                poller.run(), _show_states(poller, screen), quit_.wait()
            )


async def _show_states(poller: Poller, screen: Screen) -> None:
    async for state in poller.states():
        screen.show(msgspec.json.decode(state, type=State))


async def _run_until_one_ends(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run coroutines until one returns or raises, then cancel the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Screen(Protocol):
    """Shows states, one after the other."""

    def show(self, state: State) -> None:
        """Show the current state."""
        ...


@contextmanager
def open_screen(quit_: Callable[[], None]) -> Iterator[Screen]:
    """Yield the screen that the output allows, and restore the terminal at the end.

    The screen calls ``quit_`` when the user presses q. That needs a terminal.
    """
    console = Console()
    if console.is_terminal and not console.is_dumb_terminal:
        with _read_keys(quit_), _open_in_place(console) as screen:
            yield screen
    else:
        yield _Sequence(Console(width=None if console.is_terminal else FILE_COLUMNS))


def glyphs_for(console: Console) -> Glyphs:
    """Return the glyphs that a console can show. Letters replace missing colours."""
    if console.options.ascii_only or console.is_dumb_terminal:
        return ASCII
    has_colours = console.color_system is not None and not console.no_color
    return Glyphs(fill=not has_colours)


class _Sequence:
    """Prints each picture in full, below the previous one."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def show(self, state: State) -> None:
        frame = Frame(self._console.width, None, glyphs_for(self._console))
        for line in (*draw(state, frame), ""):
            self._console.print(line, crop=True, overflow="crop", highlight=False)


class _InPlace:
    """Draws the latest picture over the previous one, as large as the terminal."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console, self._live = console, live
        self._state: State | None = None

    def show(self, state: State) -> None:
        self._state = state
        self.redraw()

    def redraw(self) -> None:
        """Draw the last state for the terminal's current size."""
        if self._state is None:
            return
        width, height = self._console.size
        lines = draw(self._state, Frame(width, height, glyphs_for(self._console)))
        self._live.update(Group(*lines), refresh=True)


@contextmanager
def _open_in_place(console: Console) -> Iterator[_InPlace]:
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
        screen = _InPlace(console, live)
        loop.add_signal_handler(signal.SIGWINCH, screen.redraw)
        try:
            yield screen
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


@contextmanager
def _read_keys(quit_: Callable[[], None]) -> Iterator[None]:
    """Read keys without waiting for a line end. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    keyboard, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(keyboard)

    def on_readable() -> None:
        keys = os.read(keyboard, 64)
        if not keys or any(key in QUIT_KEYS for key in keys):
            quit_()

    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, on_readable)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
