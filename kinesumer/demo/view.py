"""What the demo shows while it runs: the state of all things as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinesumer.model.streams import HASH_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.model.rows import ShardRow


class StreamView(NamedTuple):
    """One stream: who holds which part of its hash space, and what waits."""

    label: str
    shards: Sequence[ShardRow]
    behind: int
    oldest_seconds: float


class ClientView(NamedTuple):
    """One client process."""

    name: str
    state: str
    place: int | None
    """Its index in the group."""
    is_leader: bool
    shards: int
    per_second: float


class View(NamedTuple):
    """Everything at one moment."""

    seconds: float
    of_seconds: float
    phase: str
    produced: int
    processed: int
    per_second: float
    streams: list[StreamView]
    clients: list[ClientView]


class Screen(Protocol):
    """Where views and events go."""

    def event(self, seconds: float, text: str) -> None:
        """Show something that happened."""
        ...

    def update(self, view: View) -> None:
        """Show how things are."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def band(shards: Sequence[ShardRow], width: int) -> list[str]:
    """Return the owner of each of ``width`` equal parts of the hash space.

    Empty where nobody owns it. A parent that is still read hides its children.
    """
    cells = [""] * width
    parents = {parent for row in shards if not row.ended for parent in row.parents}
    open_rows = [row for row in shards if not row.ended]
    # Parents last: they are read before their children.
    for row in sorted(open_rows, key=lambda row: row.key.shard_id in parents):
        first = row.first_hash * width // HASH_KEYS
        last = row.last_hash * width // HASH_KEYS
        if row.ready:
            cells[first : last + 1] = [row.owner_id] * (last + 1 - first)
    return cells


def shard_counts(views: Mapping[str, Sequence[ShardRow]]) -> dict[str, int]:
    """Return how many open shards each client owns."""
    counts: dict[str, int] = {}
    for shards in views.values():
        for row in shards:
            if row.owner_id and not row.ended:
                counts[row.owner_id] = counts.get(row.owner_id, 0) + 1
    return counts


class Plain:
    """Lines, for logs and for terminals that can't draw."""

    PAUSE_SECONDS = 5.0

    def __init__(self, write: Writer) -> None:
        self._write = write
        self._next = 0.0

    def event(self, seconds: float, text: str) -> None:
        """Write one line."""
        self._write(f"{seconds:6.1f} s  * {text}")

    def update(self, view: View) -> None:
        """Write one line every five seconds."""
        if view.seconds < self._next:
            return
        self._next = view.seconds + self.PAUSE_SECONDS
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
        """There is nothing to restore."""


class Writer(Protocol):
    """Writes one line."""

    def __call__(self, line: str, /) -> None: ...
