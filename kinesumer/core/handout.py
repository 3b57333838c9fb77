"""A batch that user code gets in parts, and who has records of the batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from operator import length_hint
from typing import Any, Generic, Protocol, TypeVar, cast

from kinesumer.core.liveness import Lease
from kinesumer.core.load import LoadMeter
from kinesumer.core.progress import Progress
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import (
    RECORD_OVERHEAD_BYTES,
    Record,
    Source,
    data_size,
    memory_size,
)


class Isolation(Protocol):
    """The records of a shard that may have killed its former owners."""

    # The record that the row must name before user code gets it.
    due: Position | None
    # Whether user code has one of the records, whose position is stored soon.
    is_in_turn: bool


class Shard(Protocol):
    """An owned shard, as the delivery of its records sees it."""

    lease: Lease
    source: Source
    progress: Progress
    load: LoadMeter
    revoked: bool  # whether its records may no longer be delivered
    handed_out: int  # user code got all records before this offset
    dropped: int  # orphaned records of batches that were dropped

    @property
    def suspects(self) -> Isolation | None:
        """Its records that may have killed former owners; None if there are none."""

    @property
    def is_finished(self) -> bool:
        """True if all fetched records are done."""

    @property
    def wants_commit(self) -> bool:
        """True if enough records are done for an early commit."""

    def set_delivered(self, count: int) -> None:
        """Record that user code got all records before offset ``count``."""

    def reduce_delivered(self, count: int) -> None:
        """Record that user code got no record at offset ``count`` or after it."""

    def set_orphaned(self, count: int) -> None:
        """Set the number of undone records that user code got but no longer has."""


S = TypeVar("S", bound=Shard)


@dataclass(slots=True, eq=False)
class FetchedBatch(Generic[S]):
    """Fetched records of one shard."""

    records: Sequence[Record]
    millis_behind: int
    size: int  # bytes in memory
    # The checkpoint to store when all records are done. None means the last record's
    # position.
    end: Position | None
    owned: S

    def __len__(self) -> int:
        return len(self.records)

    def with_records(self, records: Sequence[Record]) -> FetchedBatch[S]:
        """Return a copy of the batch with only these records."""
        size = memory_size(records)
        return FetchedBatch(records, self.millis_behind, size, self.end, self.owned)

    def for_user(self, records: Sequence[Record], kind: type[Batch] = Batch) -> Batch:
        """Return a public batch with these records."""
        return kind(records, self.millis_behind, self.owned.source)

    def data_bytes(self, first: int, stop: int) -> int:
        """Return the size of the data of some of the records."""
        if stop - first == len(self.records):
            return self.size - RECORD_OVERHEAD_BYTES * stop
        return data_size(self.records[first:stop])


class Loop:
    """A user's loop over records or batches, and the holders that run the loop.

    A holder is what a driver says has the loop's records, such as a task. ``what`` is
    the loop's name in error messages.
    """

    __slots__ = ("called_by", "runs_in", "what")

    def __init__(self, what: str, called_by: object | None = None) -> None:
        self.what: str = what
        self.called_by: object | None = called_by
        # The holder that takes a batch for the loop. It may be a helper that ends at
        # once: ``asyncio.wait_for()`` of Python 3.11 creates a task for each call.
        self.runs_in: object | None = None

    def called(self, holder: object | None) -> None:
        """Record the holder that begins the loop, or requests its next item."""
        if holder is not self.runs_in:
            self.runs_in = None
        self.called_by = holder

    @property
    def holder(self) -> object | None:
        """The holder that received the last record, unless it has ended."""
        return self.called_by if self.runs_in is None else self.runs_in

    def ended(self, holder: object) -> bool:
        """Forget a holder that has ended. Return whether the loop has none now."""
        if holder not in (self.called_by, self.runs_in):
            return False
        if self.called_by is holder:
            self.called_by = None
        if self.runs_in is holder:
            self.runs_in = None
        return self.holder is None

    def is_of_holder_of(self, other: Loop | None) -> bool:
        """Return whether two loops are identical, or belong to the same holder."""
        if other is None or other is self:
            return other is self
        holders = {self.called_by, self.runs_in} - {None}
        return not holders.isdisjoint((other.called_by, other.runs_in))


class Phase(Enum):
    """The phases of a batch that was taken from the buffer."""

    WAITING = auto()  # no loop has records of it; the next loop gets its rest
    IN_HAND = auto()  # a loop has records of it
    # The loop with its records has ended. The next request acknowledges them.
    ABANDONED = auto()
    ENDED = auto()  # user code gets no more records of it

    following: tuple[Phase, ...]  # in a tuple, a phase is found without a hash


Phase.WAITING.following = (Phase.IN_HAND, Phase.ENDED)
Phase.IN_HAND.following = (Phase.WAITING, Phase.ABANDONED)
Phase.ABANDONED.following = (Phase.WAITING,)
Phase.ENDED.following = ()


class Handout(Generic[S]):
    """A batch, and which of its records user code has received.

    ``offsets`` has each record's number, counted over the shard's delivered records.
    """

    __slots__ = (
        "_count",
        "_counted",
        "_held_back",
        "ahead",
        "batch",
        "busy_since",
        "in_hand",
        "loop",
        "offsets",
        "phase",
        "shard",
        "size",
        "taken_at",
    )

    def __init__(self, batch: FetchedBatch[S], offsets: Sequence[int]) -> None:
        self.batch = batch
        self.shard: S = batch.owned
        self.offsets: Sequence[int] = offsets
        self.size: int = batch.size  # bytes that the batch takes in the buffer
        self.phase: Phase = Phase.WAITING
        # The loop that received the batch's last delivered record, or None.
        self.loop: Loop | None = None
        # When user code received its present record; None if it has no record.
        self.busy_since: float | None = None
        # When a loop took the batch; None if no loop has it.
        self.taken_at: float | None = None
        self.in_hand: int = 0  # records handed out since the last request
        # The records that weren't handed out yet. How many were handed out follows from
        # the iterator's remaining length, so no code has to count each record.
        self.ahead: Iterator[Record] = iter(batch.records)
        self._count = len(batch.records)
        self._held_back = 0  # 1 if a record taken from ``ahead`` was taken back
        self._counted = 0

    @property
    def handed(self) -> int:
        """The number of the batch's records that were handed out."""
        return self._count - length_hint(self.ahead) - self._held_back

    @property
    def rest(self) -> int:
        """The number of the batch's records that weren't handed out yet."""
        return length_hint(self.ahead) + self._held_back

    @property
    def claimed(self) -> int:
        """The number of records that user code has received, or that a loop has."""
        return self.handed if self.is_free else self._count

    @property
    def is_free(self) -> bool:
        """True if a loop may take the rest of the batch's records."""
        return self.phase is Phase.WAITING and self.rest > 0

    # --- what user code gets --------------------------------------------------------

    def claim(self, loop: Loop, now: float) -> None:
        """Record that a loop takes the rest of the batch."""
        self.loop, self.taken_at = loop, now

    def one_by_one(self) -> Iterator[Record]:
        """Begin to hand out the batch's remaining records, one at a time."""
        self._enter(Phase.IN_HAND)
        self.ahead = iter(self._rest())
        self._held_back, self.in_hand = 0, 1
        return self.ahead

    def whole(self, now: float, kind: type[Batch] = Batch) -> Batch:
        """Hand out all remaining records of the batch at once."""
        self._enter(Phase.IN_HAND)
        rest = self._rest()
        self.ahead, self._held_back = iter(()), 0
        self.in_hand, self.busy_since = len(rest), now
        return self.batch.for_user(rest, kind)

    def keep_back(self, batch: Batch | None = None, index: int = 0) -> None:
        """Take back the last record, or a batch's records from an index.

        ``batch`` is what ``whole()`` returned.
        """
        if batch is None:
            self._held_back = 1
        else:
            self.ahead = iter(batch.records[index:])
        self.in_hand = index
        if not index:
            self._enter(Phase.WAITING)
            self.busy_since = None
        if self.rest:  # records that were taken back don't count as delivered
            self.shard.reduce_delivered(self.offsets[self.handed])

    def passed(self, now: float) -> None:
        """Record that user code has requested the next record or batch."""
        if self.taken_at is not None:
            self.shard.load.handler_seconds += now - self.taken_at
            self.taken_at = None
        if self.phase is not Phase.WAITING:
            self._enter(Phase.WAITING)
        self.in_hand, self.busy_since = 0, None

    def abandon(self) -> None:
        """Record that the loop with the records has ended without a request."""
        self._enter(Phase.ABANDONED)
        self.busy_since = None

    def end(self) -> None:
        """Stop handing out the batch's records."""
        self._enter(Phase.ENDED)
        self._drop_rest()

    # --- parts ------------------------------------------------------------------------

    def split(self, more: int = 0) -> Handout[S]:
        """Remove all but ``more`` of the records that weren't handed out.

        Return them as another batch.
        """
        handed = self.handed
        stop = min(handed + more, self._count)
        rest = self.part(range(stop, self._count))
        self._held_back, self._count = 0, stop
        self.batch = self.batch.with_records(self.batch.records[:stop])
        self.offsets = self.offsets[:stop]
        self.ahead = iter(self.batch.records[handed:])
        return rest

    def part(self, indexes: Sequence[int]) -> Handout[S]:
        """Return some of the records as a new batch.

        The memory budget counts their bytes for the new batch, and not for this one.
        """
        records = [self.batch.records[index] for index in indexes]
        offsets = [self.offsets[index] for index in indexes]
        part = Handout(self.batch.with_records(records), offsets)
        self.size -= part.size
        return part

    def _rest(self) -> Sequence[Record]:
        handed, records = self.handed, self.batch.records
        if not handed:
            return records
        self._drop_rest()
        return records[handed:]

    def _drop_rest(self) -> None:
        # A loop may still have the iterator, which ends without making what is left.
        cast("Any", self.ahead).__setstate__(sys.maxsize)

    # --- what is done -----------------------------------------------------------------

    def unmarked(self) -> list[int]:
        """Return the indexes of the records that user code has but hasn't finished."""
        stop, is_done = self.handed, self.shard.progress.is_done
        in_hand = range(stop - self.in_hand, stop)
        return [index for index in in_hand if not is_done(self.offsets[index])]

    def orphaned(self) -> int:
        """Count the undone records before ``shard.handed_out`` that no loop has."""
        stop, progress = self.handed, self.shard.progress
        first = stop - (self.in_hand if self.phase is Phase.ABANDONED else 0)
        before, count = self.shard.handed_out, 0
        for offset in self.offsets[first:]:
            if offset >= before:
                break
            count += not progress.is_done(offset)
        return count

    def sync_progress(self, *, marks: bool) -> tuple[int, int]:
        """Update the shard's progress with the records that were handed out.

        With ``marks``, mark those before user code's last request as done. Return how
        many records were handed out since the last call, and the bytes of their data.
        """
        handed, counted = self.handed, self._counted
        if handed:
            last = self.offsets[handed - 1] + 1
            self.shard.set_delivered(last)
            if marks and handed > self.in_hand:
                self.shard.progress.done_through(last - self.in_hand)
        if handed <= counted:
            return 0, 0
        self._counted = handed
        return handed - counted, self.batch.data_bytes(counted, handed)

    def _enter(self, phase: Phase) -> None:
        if phase not in self.phase.following:
            raise RuntimeError(
                f"no step leads from {self.phase.name} to {phase.name}; please report "
                "this"
            )
        self.phase = phase
