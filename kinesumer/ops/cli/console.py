"""Print texts and tables for people: on a terminal, within its width."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinesumer.runtime.text import escape_unprintable, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    return "\n".join(map(escape_unprintable, text.split("\n")))


def plain(text: str, style: str = "") -> Text:
    """Return text without markup: brackets stay, and control characters are escaped."""
    return Text(escape_unprintable(text), style=style)


def indented(text: str, style: str = "") -> RenderableType:
    """Return an indented paragraph."""
    return Padding(plain(text, style), (0, 0, 0, 2), expand=False)


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
