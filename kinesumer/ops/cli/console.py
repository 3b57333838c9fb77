"""Print for people: texts, tables and pictures; end on their keys and signals."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinesumer.errors import TransientError
from kinesumer.model.positions import Position
from kinesumer.model.streams import stream_name, stream_place
from kinesumer.runtime.stop_signals import SIGNALS
from kinesumer.runtime.text import MAX_STREAM_LETTERS, escape_unprintable, shorten

# Of the JSON of every command. The version changes only if a field is removed or
# changes its meaning.
REPORT_VERSION = 1
# The width of lines that need not fit, and of an output that isn't a terminal, unless
# COLUMNS sets it.
WIDE_COLUMNS = 400
ARROW = " → "


class PipeConsole(Console):
    """A console that raises BrokenPipeError when the reader of a pipe has gone."""

    def on_broken_pipe(self) -> None:
        """Raise the current BrokenPipeError; rich would exit with status 1."""
        raise


def console(*, wide: bool = False, err: bool = False) -> Console:
    """Return the console that reports are printed on.

    ``wide`` lets lines be longer than the terminal's. ``err`` prints on standard error.
    """
    found = PipeConsole(stderr=err)
    if wide or not (found.is_terminal or "COLUMNS" in os.environ):
        found.width = WIDE_COLUMNS
    return found


def print_lines(
    *lines: RenderableType,
    problems: Iterable[str] = (),
    wide: bool = False,
    err: bool = False,
) -> None:
    """Print lines and tables, then problems. ``err`` prints them on standard error."""
    console(wide=wide, err=err).print(Group(*lines, *marked(problems)))


def marked(problems: Iterable[str]) -> list[Text]:
    """Return a line for each problem."""
    return [plain(f"! {text}", "red") for text in problems]


def print_json(report: object, *, indent: int | None = 2, **about: object) -> None:
    """Print the version of all reports, ``about``, and a report as one JSON object."""
    fields = {"version": REPORT_VERSION, **about, **msgspec.to_builtins(report)}
    # The text is in ASCII, so it moves no terminal's cursor.
    click.echo(json.dumps(fields, indent=indent))


def safe_on_terminal(text: str) -> str:
    """Return text for standard output. On a terminal, escape all but its line ends."""
    return escape_lines(text) if sys.stdout.isatty() else text


def escape_lines(text: str) -> str:
    """Escape the control characters of a text, except line ends."""
    return "\n".join(map(escape_unprintable, text.split("\n")))


def plain(text: str, style: str = "") -> Text:
    """Return text without markup: brackets stay, and control characters are escaped."""
    return Text(escape_unprintable(text), style=style)


def indented(text: str, style: str = "") -> RenderableType:
    """Return an indented paragraph."""
    return Padding(plain(text, style), (0, 0, 0, 2), expand=False)


def checkpoint_text(number: str | None, sub: int | None) -> str:
    """Return a position as ``kinesumer seek`` takes it; nothing if there is none."""
    return "" if number is None else Position(number, sub).text


def stream_title(arn: str) -> str:
    """Return a stream's name, shortened if it is long, with its account and region."""
    place = stream_place(arn)
    title = shorten(stream_name(arn), MAX_STREAM_LETTERS)
    return f"{title} ({place})" if place else title


class Names(tuple[str, ...]):
    """A cell of names joined by arrows, which are shortened if a table is too wide."""

    __slots__ = ()

    def text(self, max_columns: int) -> str:
        """Return the names in at most ``max_columns``, control characters escaped."""
        # Begin near the end: each step measures all names again, and they may be long.
        longest = max(max_columns, 3)
        names = [shorten(escape_unprintable(name), longest) for name in self]
        while cell_len(ARROW.join(names)) > max_columns and longest > 3:
            longest -= 1
            names = [shorten(name, longest) for name in names]
        return ARROW.join(names)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield Text(self.text(options.max_width))

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, cell_len(self.text(options.max_width)))


Cell = str | Text | Names


def name(text: str) -> Names:
    """Return a cell of one name, or an empty cell."""
    return Names(filter(None, [text]))


def table(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> RenderableType:
    """Return a table without a frame, and without columns that are empty.

    If the table is wider than the console, its longest names lose their middle.
    """
    full = [at for at in range(len(titles)) if any(row[at] for row in rows)]
    shown = Table(*(titles[at] for at in full), box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*(row[at] for at in full))
    return shown


@contextmanager
def progress(text: str | Callable[[], str]) -> Iterator[None]:
    """Show ``text`` and the elapsed seconds if the block takes longer than a second.

    A function is called for each picture. The line is on standard error, only if that
    is a terminal, and is removed at the end. The block must not ask questions.
    """
    began = time.monotonic()

    def line() -> RenderableType:
        seconds = int(time.monotonic() - began)
        if not seconds:
            return Group()  # most steps end sooner, and then nothing is shown
        shown = f"{text if isinstance(text, str) else text()} … {seconds} s"
        return Text(shown, no_wrap=True, overflow="crop")

    # Rich would take FORCE_COLOR for a terminal.
    shown_on = PipeConsole(stderr=True, force_terminal=sys.stderr.isatty())
    with Live(
        get_renderable=line, console=shown_on, transient=True, redirect_stdout=False
    ):
        yield


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
    latest = first, ""
    # Its thread draws the picture again, also when the terminal's size has changed.
    live = Live(
        get_renderable=lambda: draw(*latest),
        console=PipeConsole(),
        screen=True,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="crop",
    )
    loop = asyncio.get_running_loop()
    with suppress(TimeoutError), live:
        async with asyncio.timeout(None) as limit:
            with _read_keys(lambda: limit.reschedule(loop.time())):
                while True:
                    await asyncio.sleep(interval_seconds)
                    try:
                        latest = await read(), ""
                    except TransientError as error:
                        latest = latest[0], f"{error}; trying again"


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


async def run_until_signal(task: asyncio.Task[None]) -> None:
    """Wait for a task. Cancel it on SIGINT or SIGTERM. Raises the task's error."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    # wait() doesn't raise if the task was cancelled, but awaiting the task would.
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
