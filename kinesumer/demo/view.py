"""What the demo shows while it runs: a picture in a terminal, or lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kinesumer.model.rows import ShardRow

LINE_INTERVAL_SECONDS = 5.0
MAX_EVENTS = 8


class StreamView(NamedTuple):
    """A stream: the owners of its open shards, and its lag."""

    label: str
    owners: Mapping[str, int]
    """How many open shards each client owns; those without an owner under ""."""
    behind: int
    oldest_seconds: float


class ClientView(NamedTuple):
    """A client process."""

    name: str
    state: str
    group_index: int | None
    """Its index in the group."""
    is_leader: bool
    shards: int
    per_second: float


class View(NamedTuple):
    """The state of a run."""

    seconds: float
    of_seconds: float
    phase: str
    produced: int
    processed: int
    per_second: float
    streams: list[StreamView]
    clients: list[ClientView]


class Screen(Protocol):
    """Shows views and events."""

    def event(self, seconds: float, text: str) -> None:
        """Show an event."""
        ...

    def update(self, view: View) -> None:
        """Show the current state."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


def count_owners(shards: Iterable[ShardRow]) -> Counter[str]:
    """Return how many open shards each client owns."""
    return Counter(row.owner_id for row in shards if not row.ended)


class Plain:
    """Prints lines: for logs, and for terminals that can't draw."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._next = 0.0

    def event(self, seconds: float, text: str) -> None:
        """Print one line."""
        self._write(f"{seconds:6.1f} s  * {text}")

    def update(self, view: View) -> None:
        """Print one line every five seconds."""
        if view.seconds < self._next:
            return
        self._next = view.seconds + LINE_INTERVAL_SECONDS
        clients = ", ".join(
            f"{c.name}{' (leader)' if c.is_leader else ''} "
            f"{c.shards} shards {c.per_second:.0f}/s"
            for c in view.clients
            if c.state == "running"
        )
        behind = " + ".join(str(stream.behind) for stream in view.streams)
        self._write(
            f"{view.seconds:6.1f} s    produced {view.produced:,}, "
            f"processed {view.processed:,}, behind {behind}; {clients}"
        )

    def close(self) -> None:
        """Do nothing, since lines stay."""


class Picture:
    """Draws each view over the previous one."""

    def __init__(self) -> None:
        self._events: list[tuple[float, str]] = []
        self._view: View | None = None
        self._live = Live(
            console=Console(),
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
        """Draw the current state."""
        self._view = view
        self._draw()

    def close(self) -> None:
        """Leave the last picture on the terminal."""
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
        lines = [f"{at:6.1f} s  {text}" for at, text in self._events[-MAX_EVENTS:]]
        events = Panel(Text("\n".join(lines) or " "), title="events")
        return Group(head, _streams(view.streams), _clients(view.clients), events)


def _streams(streams: list[StreamView]) -> Panel:
    table = _table("stream", "shards", "behind", "oldest", "owners")
    for stream in streams:
        owners = ", ".join(
            f"{owner or 'none'} {count}"
            for owner, count in sorted(stream.owners.items())
        )
        table.add_row(
            stream.label,
            str(sum(stream.owners.values())),
            f"{stream.behind:,}",
            f"{stream.oldest_seconds:.1f} s",
            owners,
        )
    return Panel(table, title="streams")


def _clients(clients: list[ClientView]) -> Panel:
    table = _table("client", "index", "shards", "records/s", "state")
    for client in clients:
        table.add_row(
            client.name,
            "" if client.group_index is None else str(client.group_index),
            str(client.shards),
            f"{client.per_second:.0f}",
            f"{client.state}{' (leader)' if client.is_leader else ''}",
        )
    return Panel(table, title="clients")


def _table(first: str, *titles: str) -> Table:
    """Return a table whose first and last columns are text, the others numbers."""
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for title in titles:
        table.add_column(title, justify="left" if title is titles[-1] else "right")
    return table
