"""The picture: a band of the hash space per stream, in the colours of its owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kinesumer.demo.view import band

if TYPE_CHECKING:
    from kinesumer.demo.view import StreamView, View

COLOURS = (
    "dodger_blue2",
    "dark_orange3",
    "green4",
    "magenta3",
    "gold3",
    "dark_cyan",
    "red3",
    "purple4",
)
EVENTS = 8


class Picture:
    """Draws views over each other, with rich."""

    def __init__(self) -> None:
        self._console = Console()
        self._events: list[tuple[float, str]] = []
        self._view: View | None = None
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def event(self, seconds: float, text: str) -> None:
        """Add an event to the list."""
        self._events.append((seconds, text))
        self._draw()

    def update(self, view: View) -> None:
        """Draw how things are."""
        self._view = view
        self._draw()

    def close(self) -> None:
        """Leave the last picture where it is."""
        self._live.stop()

    def _draw(self) -> None:
        if self._view is not None:
            self._live.update(self._picture(self._view), refresh=True)

    def _picture(self, view: View) -> Group:
        head = Text.assemble(
            (f"{view.seconds:5.1f} s of {view.of_seconds:g} s  ", "bold"),
            f"{view.phase}   produced {view.produced:,}   processed ",
            f"{view.processed:,}   {view.per_second:.0f} records/s",
        )
        return Group(head, self._streams(view), _clients(view), self._happened())

    def _streams(self, view: View) -> Panel:
        width = max(20, self._console.width - 44)
        table = Table.grid(padding=(0, 1))
        ended = {client.name for client in view.clients if client.state == "ended"}
        for stream in view.streams:
            waiting = f"{stream.behind:,} behind, oldest {stream.oldest_seconds:.1f} s"
            table.add_row(stream.label, _coloured(stream, width, ended))
            table.add_row("", Text(waiting, style="dim"))
        return Panel(table, title="streams: who holds which hash keys")

    def _happened(self) -> Panel:
        lines = [f"{at:6.1f} s  {text}" for at, text in self._events[-EVENTS:]]
        return Panel(Text("\n".join(lines) or " "), title="events")


def colour(client: str) -> str:
    """Return a client's colour: by the number in its name."""
    number = client.rpartition("-")[2]
    place = int(number) - 1 if number.isdecimal() else 0
    return COLOURS[place % len(COLOURS)]


def _coloured(stream: StreamView, width: int, ended: set[str]) -> Text:
    """Draw one stream; what a dead client still owns is grey."""
    text = Text()
    starts = {row.first_hash * width >> 128 for row in stream.shards if not row.ended}
    for place, owner in enumerate(band(stream.shards, width)):
        edge = "▏" if place in starts else " "
        if owner:
            # The number too: not every terminal shows colours.
            letter = owner.rpartition("-")[2][-1] if place - 1 in starts else edge
            shade = "grey30" if owner in ended else colour(owner)
            text.append(letter, style=f"bold white on {shade}")
        else:
            text.append("·" if edge == " " else edge, style="dim")
    return text


def _clients(view: View) -> Panel:
    table = Table(box=None, pad_edge=False)
    for title in ("client", "state", "index", "shards", "records/s"):
        table.add_column(title, justify="left" if title in "client state" else "right")
    for client in view.clients:
        leader = " (leader)" if client.is_leader else ""
        table.add_row(
            Text(client.name, style=f"bold {colour(client.name)}"),
            client.state + leader,
            "" if client.place is None else str(client.place),
            str(client.shards),
            f"{client.per_second:.0f}",
        )
    return Panel(table, title="clients")
