"""The true history of each shard, with its records, owners, and their progress.

The history consists of writes, deliveries, and records that user code has done. It is
recorded without any code of the library.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from kinesumer.model.rows import Row
from kinesumer.testing.simulation.machine import Machine

# A record's position in its shard, in a form that can be sorted: the length of the
# sequence number, the sequence number, and the sub-sequence number.
RecordPosition = tuple[int, str, int]
# A sub-sequence number that stands for the whole Kinesis record.
WHOLE = 1 << 53


def record_position(sequence_number: str, sub: int | None) -> RecordPosition:
    """Return a sortable position. Without ``sub``, it is after the whole record."""
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
    """One epoch of a shard, with its owner, first record, and progress."""

    epoch: int
    session: str
    machine: Machine
    # Index of the record that must be delivered first.
    first: int
    claimed_at: float = 0.0
    # The time of the first record's delivery.
    started_at: float | None = None
    # When the owner released the shard, or another session took it.
    ended_at: float | None = None
    # True if the owner has tried to release or end the shard.
    released: bool = False
    # The index after the last delivered record. There is one for each partition key if
    # order matters only within a key, and else a single one with the key None.
    cursors: dict[str | int | None, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    # Every index from ``first`` to this one (exclusive) is done.
    done_until: int = 0

    def mark(self, index: int) -> None:
        """Note that user code has done a record in this epoch."""
        self.done.add(index)
        while self.done_until in self.done:
            self.done.remove(self.done_until)
            self.done_until += 1


class ShardTrace:
    """The true history of one shard."""

    seeked_epoch: int

    def __init__(self, shard_id: str, parents: tuple[str, ...]) -> None:
        self.shard_id = shard_id
        self.parents = parents
        self.log: list[RecordPosition] = []
        self.arrivals: list[float] = []
        self.index: dict[tuple[str, int | None], int] = {}
        self.done: bytearray = bytearray()
        self.delivered: bytearray = bytearray()
        # All records before this index are done, expired, or before the start.
        self.done_until: int = 0
        self.expired: int = 0
        self.ownerships: dict[int, Ownership] = {}
        self.row: Row | None = None
        # True if Kinesis no longer lists the shard.
        self.forgotten = False
        self.pruned = False
        # The time at which the shard's end was stored.
        self.ended_at: float | None = None
        # The target index of the last seek, if there was a seek.
        self.seek_index: int | None = None
        # The epoch that the last seek began. Deliveries and acks in earlier epochs
        # don't count.
        self.seeked_epoch = 0
        # For each operator, the number of its last seek of this shard. The seeks of all
        # shards are numbered in one sequence.
        self.seeked: dict[str, int] = {}
        # The operator and number of the last seek that undid the shard's end.
        self.reopened: tuple[str, int] = ("", 0)

    @property
    def has_expired(self) -> bool:
        """True if all records of the shard have expired."""
        return self.expired == len(self.log)

    def seek(self, first: int, epoch: int, operator: str, number: int) -> None:
        """Record a seek to an index. The seek begins an epoch that has no owner."""
        self.seek_index, self.seeked_epoch = first, epoch
        self.seeked[operator] = number
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
        """Note that the records older than ``before`` have expired."""
        self.expired = max(self.expired, bisect_left(self.arrivals, before))

    def through(self, position: RecordPosition) -> int:
        """Return the number of records that are at or before a position."""
        return bisect_right(self.log, position)

    def since(self, start: str) -> int:
        """Return the index of the first record at or after a stored start."""
        kind, _, timestamp = start.partition(" ")
        if kind == "AT_TIMESTAMP":
            return bisect_left(self.arrivals, float(timestamp))
        return 0

    def first_of(self, row: Row) -> int:
        """Return the index of the first record that an owner with this row reads."""
        position = row_position(row)
        if position is not None:
            return self.through(position)
        return self.since(str(row["start"]))

    def first_due(self, row: Row) -> int:
        """Return the index of the first record after both the checkpoint and the start.

        The checkpoint is before the start if the owner has only read older records.
        """
        return max(self.first_of(row), self.since(str(row["start"])))

    def first_undone(self, first: int, stop: int) -> int | None:
        """Return the first index before ``stop`` that is neither done nor expired."""
        index = max(first, self.expired, min(self.done_until, stop))
        undone = self.done.find(0, index, stop) if index < stop else -1
        return None if undone < 0 else undone

    def may_precede(self, parent: ShardTrace) -> bool:
        """Return True if the shard may be read although its parent was reopened.

        That is so until the operator that reopened the parent has seeked this shard.
        """
        operator, number = parent.reopened
        return self.seeked.get(operator, 0) < number

    def mark(self, index: int, epoch: int) -> None:
        """Record that user code has done a record."""
        if epoch < self.seeked_epoch:
            return
        self.done[index] = 1
        while self.done_until < len(self.done) and self.done[self.done_until]:
            self.done_until += 1
