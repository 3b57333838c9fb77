"""A batch taken from the buffer, and the loop over records that has it."""

from __future__ import annotations

import asyncio
from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import data_bytes
from kinesumer.telemetry.names import DATA_BYTES_PROCESSED, RECORDS_PROCESSED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesumer.consuming.prefetch import FetchedBatch
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record
    from kinesumer.telemetry.api import Telemetry

UserTask = asyncio.Task[object]


class Iteration:
    """One loop over records or batches, and the task that it runs in.

    ``what`` names it in errors.
    """

    __slots__ = ("_called_by", "_runs_in", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self._called_by: UserTask | None = None
        self._runs_in: UserTask | None = None

    def called(self, task: UserTask | None) -> None:
        """Record the task that begins the loop, or calls ``anext()``."""
        if task is not self._runs_in:
            self._runs_in = None
        self._called_by = task

    def runs(self, task: UserTask | None) -> None:
        """Record the task in which a batch is taken.

        It may be a helper that ends at once: ``asyncio.wait_for()`` of Python 3.11
        makes one for each call.
        """
        self._runs_in = task

    @property
    def task(self) -> UserTask | None:
        """The task that has the requested record, as far as it is known."""
        task = self._runs_in
        return self._called_by if task is None or task.done() else task

    def is_of_task_of(self, other: Iteration | None) -> bool:
        """Return whether both are the same loop, or belong to the same task."""
        if other is None or other is self:
            return other is self
        tasks = {self._called_by, self._runs_in} - {None}
        return not tasks.isdisjoint((other._called_by, other._runs_in))

    def renewed(self) -> Iteration:
        """Return a new loop of the same task."""
        made = Iteration(self.what)
        made._called_by = self._called_by
        return made


class DeliveredBatch:
    """A batch, how much of it user code got, and when.

    ``offsets`` are the places of its records among all of the shard, from 0.
    """

    __slots__ = (
        "_count",
        "_counted",
        "_held_back",
        "ahead",
        "batch",
        "busy_since",
        "in_hand",
        "is_abandoned",
        "iteration",
        "offsets",
        "owned",
        "size",
    )

    def __init__(self, batch: FetchedBatch, offsets: Sequence[int]) -> None:
        self.batch = batch
        self.owned = batch.owned
        self.offsets = offsets
        self.size = batch.size
        """Bytes that it takes in the buffer."""
        self.iteration: Iteration | None = None
        """The loop that got its last record; None before that."""
        self.busy_since: float | None = None
        """When user code got the record that it has; None while it has none."""
        self.in_hand = 0
        """Records handed out since the last request."""
        self.is_abandoned = False
        """The task that has it in hand has ended."""
        self.ahead: Iterator[Record] = iter(batch.records)
        """The records to come. Its remaining length tells how many were handed out, so
        that nothing is counted per record."""
        self._count = len(batch)
        self._held_back = 0
        """1 while a record taken from ``ahead`` isn't permitted yet."""
        self._counted = 0

    @property
    def handed(self) -> int:
        """How many of its records were handed out."""
        return self._count - length_hint(self.ahead) - self._held_back

    @property
    def has_rest(self) -> bool:
        """Whether some of its records weren't handed out yet."""
        return self.handed < self._count

    @property
    def is_free(self) -> bool:
        """Whether a loop may take the records that weren't handed out yet."""
        return not self.in_hand and self.has_rest

    def one_by_one(self) -> Iterator[Record]:
        """Begin to hand out the rest, one record at a time."""
        self.ahead = iter(self._rest())
        self._held_back, self.in_hand = 0, 1
        return self.ahead

    def keep_back(self) -> None:
        """Take back the record that was just taken: it may not be handed out now."""
        self._held_back, self.in_hand = 1, 0
        self.busy_since = None

    def hand_on(self) -> None:
        """Hand out the record that was kept back."""
        self._held_back, self.in_hand = 0, 1

    def whole(self, now: float) -> Batch:
        """Hand out the rest at once."""
        rest = self._rest()
        self.ahead, self._held_back = iter(()), 0
        self.in_hand, self.busy_since = len(rest), now
        return self.batch.for_user(rest)

    def keep_back_whole(self, batch: Batch) -> None:
        """Take back a batch that ``whole()`` returned."""
        self.ahead, self.in_hand = iter(batch.records), 0
        self.busy_since = None

    def passed(self) -> None:
        """Record that the next record or batch was requested."""
        self.in_hand, self.busy_since, self.is_abandoned = 0, None, False

    def drop_rest(self) -> None:
        """Give its loop no more records."""
        deque(self.ahead, maxlen=0)

    def split(self) -> DeliveredBatch:
        """Return the rest as a batch of its own, and keep what was handed out."""
        stop = self.handed
        rest = self.part(range(stop, self._count))
        deque(self.ahead, maxlen=0)
        self._held_back, self._count = 0, stop
        self.batch = self.batch.with_records(self.batch.records[:stop])
        self.offsets = self.offsets[:stop]
        return rest

    def unmarked(self) -> list[int]:
        """Return the indexes of the records in hand that aren't done."""
        stop, is_done = self.handed, self.owned.progress.is_done
        in_hand = range(stop - self.in_hand, stop)
        return [index for index in in_hand if not is_done(self.offsets[index])]

    def part(self, indexes: Sequence[int]) -> DeliveredBatch:
        """Return some records as a batch of its own, with their share of the bytes."""
        records = [self.batch.records[index] for index in indexes]
        offsets = [self.offsets[index] for index in indexes]
        part = DeliveredBatch(self.batch.with_records(records), offsets)
        self.size -= part.size
        return part

    def orphaned(self) -> int:
        """Return how many undone records before ``handed_out`` no loop has."""
        stop, progress = self.handed, self.owned.progress
        first = stop - (self.in_hand if self.is_abandoned else 0)
        before, count = self.owned.handed_out, 0
        for offset in self.offsets[first:]:
            if offset >= before:
                break
            count += not progress.is_done(offset)
        return count

    def sync_progress(self, telemetry: Telemetry, *, marks: bool) -> None:
        """Update the owned shard; with ``marks`` all but what is in hand is done."""
        handed = self.handed
        if not handed:
            return
        last = self.offsets[handed - 1] + 1
        self.owned.set_delivered(last)
        if marks and handed > self.in_hand:
            self.owned.progress.done_through(last - self.in_hand)
        if handed > self._counted:
            size = data_bytes(self.batch, self._counted, handed)
            new, self._counted = handed - self._counted, handed
            telemetry.count(RECORDS_PROCESSED, self.owned.key.stream_arn, new)
            telemetry.count(DATA_BYTES_PROCESSED, self.owned.key.stream_arn, size)

    def _rest(self) -> list[Record]:
        handed, records = self.handed, self.batch.records
        if not handed:
            return records
        self.drop_rest()
        return records[handed:]
