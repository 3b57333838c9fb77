"""Redraw a fleet in place in a terminal; print one picture after another elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group
from rich.live import Live

from kinesumer.ops.cli.console import PipeConsole
from kinesumer.ops.cli.terminal_view.band import ASCII, Glyphs
from kinesumer.ops.cli.terminal_view.drawing import Frame, draw
from kinesumer.ops.dashboard.model import State
from kinesumer.ops.dashboard.poller import Poller, StoreFleetSource, StreamMeasurements
from kinesumer.ops.dashboard.view_model import DashboardInfo
from kinesumer.ops.group.lag import Lags
from kinesumer.ops.group.snapshot import read_known_snapshot
from kinesumer.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from rich.console import Console

    from kinesumer.ops.cli.options import CommonOptions
    from kinesumer.ops.group.connect import Roles
    from kinesumer.ops.group.snapshot import Snapshot

    Show = Callable[[State], None]

# q, and the character that Ctrl-D sends in cbreak mode.
QUIT_KEYS = b"qQ\x04"
# The width of the picture if the output isn't a terminal.
FILE_COLUMNS = 120


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
        # Fail for an unknown app before the terminal's content is replaced.
        await read_known_snapshot(store, app, table)
        clock = SystemClock()
        fleet_type = StoreFleetSource if common.lag else StoredRowsOnly
        fleet = fleet_type(app, clients, store, clock, roles)
        poller = Poller(DashboardInfo(app, table, clients.region or ""), fleet, clock)
        quit_ = asyncio.Event()
        with open_screen(quit_.set) as show:
            await _run_until_one_ends(
                poller.run(), _show_states(poller, show), quit_.wait()
            )


async def _show_states(poller: Poller, show: Show) -> None:
    async for state in poller.states():
        show(msgspec.json.decode(state, type=State))


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


@contextmanager
def open_screen(quit_: Callable[[], None]) -> Iterator[Show]:
    """Yield a function that draws a state in a form that the output supports.

    A terminal is restored at the end. ``quit_`` is called when the user presses q.
    """
    console = PipeConsole()
    if console.is_terminal and not console.is_dumb_terminal:
        with _read_keys(quit_), _open_in_place(console) as show:
            yield show
        return
    below = PipeConsole(width=None if console.is_terminal else FILE_COLUMNS)

    def show_below(state: State) -> None:
        for line in (*draw(state, Frame(below.width, None, glyphs_for(below))), ""):
            below.print(line, crop=True, overflow="crop", highlight=False)

    yield show_below


def glyphs_for(console: Console) -> Glyphs:
    """Return the glyphs for a console. Without colours, letters fill the shards."""
    if console.options.ascii_only or console.is_dumb_terminal:
        return ASCII
    has_colours = console.color_system is not None and not console.no_color
    return Glyphs(fill=not has_colours)


@contextmanager
def _open_in_place(console: Console) -> Iterator[Show]:
    """Yield a function that fills the terminal, drawing over the last picture."""
    loop = asyncio.get_running_loop()
    latest: State | None = None

    def picture() -> Group:
        if latest is None:
            return Group()
        return Group(*draw(latest, Frame(*console.size, glyphs_for(console))))

    def show_latest(state: State) -> None:
        nonlocal latest
        latest = state
        live.refresh()

    live = Live(
        get_renderable=picture,
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    with live:
        loop.add_signal_handler(signal.SIGWINCH, live.refresh)
        try:
            yield show_latest
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
