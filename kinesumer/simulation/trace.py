"""What really happened to each shard: its log, its owners, what was delivered and done.

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
"""A record's place in its shard, comparable: length, sequence number, part."""
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
    """One epoch of a shard: who had it, from where, how far."""

    epoch: int
    session: str
    machine: Machine
    first: int
    """Index of the record that must be delivered first."""
    claimed_at: float = 0.0
    started_at: float | None = None
    """When its first record was delivered."""
    ended_at: float | None = None
    """When the owner gave the shard up, or another took it."""
    given_up: bool = False
    """Its owner has tried to release or end the shard."""
    cursors: dict[str | None, int] = field(default_factory=dict)
    """Index after the last one delivered, by partition key if only keys have order."""
    done: set[int] = field(default_factory=set)
    done_until: int = 0
    """Every index from ``first`` to this one (exclusive) is done."""

    def mark(self, index: int) -> None:
        """Note one record as done in this epoch."""
        self.done.add(index)
        while self.done_until in self.done:
            self.done.remove(self.done_until)
            self.done_until += 1


class ShardTrace:
    """One shard's truth."""

    def __init__(self, shard_id: str, parents: tuple[str, ...]) -> None:
        self.shard_id = shard_id
        self.parents = parents
        self.log: list[RecordPosition] = []
        self.arrivals: list[float] = []
        self.index: dict[tuple[str, int | None], int] = {}
        self.done = bytearray()
        self.delivered = bytearray()
        self.done_until = 0
        """Every index before this one is done, expired, or before the start."""
        self.expired = 0
        self.ownerships: dict[int, Ownership] = {}
        self.row: Row | None = None
        self.forgotten = False
        """Kinesis doesn't list it any more."""
        self.pruned = False
        self.ended_at: float | None = None
        """When its end was stored."""
        self.seek_index: int | None = None
        """Index that the last seek went to, if there was one."""
        self.seeked_epoch = 0
        """What is delivered and done in epochs before doesn't count."""
        self.seeked: dict[str, int] = {}
        """Each operator's last seek: seeks of all shards are counted."""
        self.reopened: tuple[str, int] = ("", 0)
        """The last seek that undid its end, and whose it was."""

    def seek(self, first: int, epoch: int, operator: str, place: int) -> None:
        """Note that an operator had it read on from an index, in no session's epoch."""
        self.seek_index, self.seeked_epoch = first, epoch
        self.seeked[operator] = place
        self.done_until = first
        self.done[:first] = b"\1" * first
        for marks in (self.done, self.delivered):
            marks[first:] = bytes(len(marks) - first)

    def append(self, sequence_number: str, sub: int | None, arrived: float) -> None:
        """Note a record that was produced."""
        self.index[sequence_number, sub] = len(self.log)
        self.log.append(record_position(sequence_number, sub))
        self.arrivals.append(arrived)
        self.done.append(0)
        self.delivered.append(0)

    def expire(self, before: float) -> None:
        """Note that records older than a time are gone."""
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
        """Tell whether it may be read though an operator has opened its parent again.

        That operator's seek is still to reach it, whatever others did to it meanwhile.
        """
        operator, place = parent.reopened
        return self.seeked.get(operator, 0) < place

    def mark(self, index: int, epoch: int) -> None:
        """Note that user code has done a record."""
        if epoch < self.seeked_epoch:
            return
        self.done[index] = 1
        while self.done_until < len(self.done) and self.done[self.done_until]:
            self.done_until += 1
