"""Show the progress of a trial as a picture in a terminal or as lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kinesumer.model.rows import ShardRow

LINE_INTERVAL_SECONDS = 5.0
MAX_EVENTS = 8


class StreamView(NamedTuple):
    """The state of a stream: the owners of its open shards, and its lag."""

    label: str
    # Number of open shards by owner. Shards without an owner have the key "".
    owners: Mapping[str, int]
    behind: int
    oldest_seconds: float


class ClientView(NamedTuple):
    """The state of a client process."""

    name: str
    state: str
    group_index: int | None
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
    """Shows the events and the current state of a run."""

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
    """Prints lines, for logs and for terminals without cursor control."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._next = 0.0

    def event(self, seconds: float, text: str) -> None:
        """Print an event as one line."""
        self._write(f"{seconds:6.1f} s  * {text}")

    def update(self, view: View) -> None:
        """Print the current state in one line, but only every five seconds."""
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
        """Do nothing, since printed lines need no cleanup."""


class Picture:
    """Draws the state of a run over the previous drawing in the terminal."""

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
        streams = _panel(
            "streams",
            ("stream", "shards", "behind", "oldest", "owners"),
            [
                (
                    stream.label,
                    str(sum(stream.owners.values())),
                    f"{stream.behind:,}",
                    f"{stream.oldest_seconds:.1f} s",
                    ", ".join(
                        f"{owner or 'unassigned'} {count}"
                        for owner, count in sorted(stream.owners.items())
                    ),
                )
                for stream in view.streams
            ],
        )
        clients = _panel(
            "clients",
            ("client", "index", "shards", "records/s", "state"),
            [
                (
                    client.name,
                    "" if client.group_index is None else str(client.group_index),
                    str(client.shards),
                    f"{client.per_second:.0f}",
                    f"{client.state}{' (leader)' if client.is_leader else ''}",
                )
                for client in view.clients
            ],
        )
        return Group(head, streams, clients, events)


def _panel(name: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> Panel:
    """Return a table. Its first and last columns are text, the others are numbers."""
    table = Table(box=None, pad_edge=False)
    for title in titles:
        is_text = title in (titles[0], titles[-1])
        table.add_column(title, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*row)
    return Panel(table, title=name)
