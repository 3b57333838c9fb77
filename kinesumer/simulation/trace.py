"""The true history of each shard: its records, its owners, and their progress.

Built from writes, deliveries and done marks only, without the library's own code.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.simulation.machine import Machine

RecordPosition = tuple[int, str, int]
"""A record's sortable position in its shard: length, number, sub-sequence number."""
WHOLE = 1 << 53


def record_position(sequence_number: str, sub: int | None) -> RecordPosition:
    """Return a comparable place; without a part, it's after all parts."""
    return len(sequence_number), sequence_number, WHOLE if sub is None else sub


def row_position(row: Row | None) -> RecordPosition | None:
    """Return the checkpoint that a shard row holds."""
    if row is None or "sequence_number" not in row:
        return None
    sub = row.get("sub_sequence_number")
    assert sub is None or isinstance(sub, int)
    return record_position(str(row["sequence_number"]), sub)


@dataclass
class Ownership:
    """One epoch of a shard: its owner, first record, and progress."""

    epoch: int
    session: str
    machine: Machine
    first: int
    """Index of the record that must be delivered first."""
    claimed_at: float = 0.0
    started_at: float | None = None
    """When its first record was delivered."""
    ended_at: float | None = None
    """When the owner released the shard, or another session took it."""
    released: bool = False
    """Its owner has tried to release or end the shard."""
    cursors: dict[str | None, int] = field(default_factory=dict)
    """Index after the last one delivered, by partition key if only keys have order."""
    done: set[int] = field(default_factory=set)
    done_until: int = 0
    """Every index from ``first`` to this one (exclusive) is done."""

    def mark(self, index: int) -> None:
        """Record that a record was done in this epoch."""
        self.done.add(index)
        while self.done_until in self.done:
            self.done.remove(self.done_until)
            self.done_until += 1


class ShardTrace:
    """The true history of one shard."""

    def __init__(self, shard_id: str, parents: tuple[str, ...]) -> None:
        self.shard_id = shard_id
        self.parents = parents
        self.log: list[RecordPosition] = []
        self.arrivals: list[float] = []
        self.index: dict[tuple[str, int | None], int] = {}
        self.done = bytearray()
        self.delivered = bytearray()
        self.done_until = 0
        """All records before this index are done, expired, or before the start."""
        self.expired = 0
        self.ownerships: dict[int, Ownership] = {}
        self.row: Row | None = None
        self.forgotten = False
        """Whether Kinesis no longer lists it."""
        self.pruned = False
        self.ended_at: float | None = None
        """When its end was stored."""
        self.seek_index: int | None = None
        """Index that the last seek moved to, if there was one."""
        self.seeked_epoch = 0
        """Deliveries and acks in earlier epochs don't count."""
        self.seeked: dict[str, int] = {}
        """The number of each operator's last seek, counted over all shards."""
        self.reopened: tuple[str, int] = ("", 0)
        """The operator and number of the last seek that undid the shard's end."""

    def seek(self, first: int, epoch: int, operator: str, place: int) -> None:
        """Record a seek to an index, which begins an epoch without an owner."""
        self.seek_index, self.seeked_epoch = first, epoch
        self.seeked[operator] = place
        self.done_until = first
        self.done[:first] = b"\1" * first
        for marks in (self.done, self.delivered):
            marks[first:] = bytes(len(marks) - first)

    def append(self, sequence_number: str, sub: int | None, arrived: float) -> None:
        """Add a record that was produced."""
        self.index[sequence_number, sub] = len(self.log)
        self.log.append(record_position(sequence_number, sub))
        self.arrivals.append(arrived)
        self.done.append(0)
        self.delivered.append(0)

    def expire(self, before: float) -> None:
        """Record that records older than a time have expired."""
        self.expired = max(self.expired, bisect_left(self.arrivals, before))

    def through(self, place: RecordPosition) -> int:
        """Return how many records lie at or before a place."""
        return bisect_right(self.log, place)

    def since(self, start: str) -> int:
        """Return the index of the first record that counts for a stored start."""
        kind, _, timestamp = start.partition(" ")
        if kind == "AT_TIMESTAMP":
            return bisect_left(self.arrivals, float(timestamp))
        return 0

    def first_of(self, row: Row) -> int:
        """Return the index that an owner begins with who claimed this row."""
        place = row_position(row)
        if place is not None:
            return self.through(place)
        return self.since(str(row["start"]))

    def first_due(self, row: Row) -> int:
        """Return the index of the first record behind the checkpoint that counts.

        Pages of records from before the start leave a checkpoint among these.
        """
        return max(self.first_of(row), self.since(str(row["start"])))

    def first_undone(self, first: int, stop: int) -> int | None:
        """Return the first index in a range that is neither done nor expired."""
        index = max(first, self.expired, min(self.done_until, stop))
        found = self.done.find(0, index, stop) if index < stop else -1
        return None if found < 0 else found

    def may_precede(self, parent: ShardTrace) -> bool:
        """Return whether it may be read although an operator has reopened its parent.

        That operator's seek is still to reach it, whatever others did to it meanwhile.
        """
        operator, place = parent.reopened
        return self.seeked.get(operator, 0) < place

    def mark(self, index: int, epoch: int) -> None:
        """Record that user code has done a record."""
        if epoch < self.seeked_epoch:
            return
        self.done[index] = 1
        while self.done_until < len(self.done) and self.done[self.done_until]:
            self.done_until += 1
