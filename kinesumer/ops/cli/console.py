"""Print for people: texts, tables, the progress of a step, and pictures."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinesumer.errors import TransientError
from kinesumer.model.streams import stream_name, stream_place
from kinesumer.runtime.text import MAX_STREAM_LETTERS, escape_unprintable, shorten

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Sequence,
    )

# Of the JSON of every command. It changes only if a field is removed or changes its
# meaning.
REPORT_VERSION = 1
# The width of lines that need not fit, and of an output that isn't a terminal, unless
# COLUMNS sets it.
WIDE_COLUMNS = 400
# A narrower terminal wraps lines.
MIN_TERMINAL_COLUMNS = 80
# Names keep at least this length.
MIN_NAME_COLUMNS = 8
GAP_COLUMNS = 2
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
    default = PipeConsole(stderr=err)
    if wide:
        return PipeConsole(width=WIDE_COLUMNS, stderr=err)
    is_sized = default.is_terminal or "COLUMNS" in os.environ
    width = max(default.width, MIN_TERMINAL_COLUMNS) if is_sized else WIDE_COLUMNS
    return PipeConsole(width=width, stderr=err)


def print_lines(
    *lines: RenderableType,
    problems: Iterable[str] = (),
    wide: bool = False,
    err: bool = False,
) -> None:
    """Print lines and tables, then problems. ``err`` prints them on standard error."""
    marked = [plain(f"! {text}", "red") for text in problems]
    console(wide=wide, err=err).print(Group(*lines, *marked))


def print_json(report: object, *, indent: int | None = 2, **about: object) -> None:
    """Print the version of all reports, ``about``, and a report as one JSON object.

    The text is in ASCII, so it moves no terminal's cursor.
    """
    fields = {"version": REPORT_VERSION, **about, **msgspec.to_builtins(report)}
    click.echo(json.dumps(fields, indent=indent))


def safe_on_terminal(text: str) -> str:
    """Return text for standard output. On a terminal, escape all but its line ends.

    What is not a terminal gets the text unchanged, since a program may read it.
    """
    if not sys.stdout.isatty():
        return text
    return escape_lines(text)


def escape_lines(text: str) -> str:
    """Escape the control characters of a text, except line ends."""
    return "\n".join(map(escape_unprintable, text.split("\n")))


def plain(text: str, style: str = "") -> Text:
    """Return text without markup: brackets stay, and control characters are escaped."""
    return Text(escape_unprintable(text), style=style)


def indented(text: str, style: str = "") -> RenderableType:
    """Return an indented paragraph."""
    return Padding(plain(text, style), (0, 0, 0, 2), expand=False)


def position_text(number: str | None, sub: int | None) -> str:
    """Return a position; nothing if there is none."""
    return number or "" if sub is None else f"{number}/{sub}"


def stream_title(arn: str) -> str:
    """Return a stream's name, shortened if it is long, with its account and region."""
    place = stream_place(arn)
    title = shorten(stream_name(arn), MAX_STREAM_LETTERS)
    return f"{title} ({place})" if place else title


class Names(tuple[str, ...]):
    """A cell of one name, or of several joined by arrows.

    If a table is too wide, these names are shortened.
    """

    __slots__ = ()

    def text(self, max_columns: int | None = None) -> str:
        """Return the names in at most ``max_columns``, control characters escaped."""
        names = [escape_unprintable(name) for name in self]
        if max_columns is None:
            return ARROW.join(names)
        # Begin near the end: each step measures all names again, and they may be long.
        longest = max(max_columns, 3)
        names = [shorten(name, longest) for name in names]
        while cell_len(ARROW.join(names)) > max_columns and longest > 3:
            longest -= 1
            names = [shorten(name, longest) for name in names]
        return ARROW.join(names)


Cell = str | Text | Names


def name(text: str) -> Names:
    """Return a cell of one name."""
    return Names([text])


def table(
    titles: Sequence[str], rows: Sequence[Sequence[Cell]], *, wide: bool = False
) -> RenderableType:
    """Return a table without a frame, and without columns that are empty.

    If the table is wider than the console, its longest names lose their middle.
    """
    full = [at for at in range(len(titles)) if any(_text(row[at]) for row in rows)]
    if rows:
        titles = [titles[at] for at in full]
        rows = [[row[at] for at in full] for row in rows]
    widths = [
        max([cell_len(title), *(cell_len(_text(row[at])) for row in rows)])
        for at, title in enumerate(titles)
    ]
    with_names = {
        at for row in rows for at, cell in enumerate(row) if isinstance(cell, Names)
    }
    most = console(wide=wide).width
    for at in with_names:  # no column of names can stay wider than the whole line
        widths[at] = min(widths[at], most)
    excess = sum(widths) + GAP_COLUMNS * (len(widths) - 1) - most
    while excess > 0 and with_names:
        widest = max(with_names, key=lambda at: widths[at])
        if widths[widest] <= MIN_NAME_COLUMNS:
            break
        widths[widest] -= 1
        excess -= 1
    result = Table(box=None, pad_edge=False)
    for title in titles:
        result.add_column(title)
    for row in rows:
        cells = [
            Text(cell.text(widths[at])) if isinstance(cell, Names) else cell
            for at, cell in enumerate(row)
        ]
        result.add_row(*cells)
    return result


def _text(cell: Cell) -> str:
    if isinstance(cell, Names):
        return cell.text()
    return cell.plain if isinstance(cell, Text) else cell


@contextmanager
def progress(text: str | Callable[[], str]) -> Iterator[None]:
    """Show ``text`` and the elapsed seconds if the block takes longer than a second.

    A function is called for each picture. The line is written to standard error, only
    if that is a terminal, and is removed at the end. What the block writes to standard
    error is printed above the line. The block must not ask questions.
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
