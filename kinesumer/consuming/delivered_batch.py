"""A batch that was taken from the buffer, and the user's loop that received it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from operator import length_hint
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import data_bytes
from kinesumer.consuming.watchdog import InFlightWork, task_stack
from kinesumer.runtime.failure_log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch
    from kinesumer.core.turns import Turns
    from kinesumer.model.records import Batch, Record
    from kinesumer.telemetry.api import Telemetry

UserTask = asyncio.Task[object]


def current_task() -> UserTask | None:
    """Return the task that runs, or None if no task or no event loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Iteration:
    """A user's loop over records or batches, and the task that runs the loop.

    ``what`` is the loop's name in error messages.
    """

    __slots__ = ("_called_by", "_runs_in", "what")

    def __init__(self, what: str) -> None:
        self.what: str = what
        self._called_by: UserTask | None = None
        self._runs_in: UserTask | None = None

    def called(self, task: UserTask | None) -> None:
        """Record the task that begins the loop, or calls ``anext()``."""
        if task is not self._runs_in:
            self._runs_in = None
        self._called_by = task

    def runs(self, task: UserTask | None) -> None:
        """Record the task that takes a batch for the loop.

        It may be a helper task that ends at once: ``asyncio.wait_for()`` of Python 3.11
        creates one for each call.
        """
        self._runs_in = task

    @property
    def task(self) -> UserTask | None:
        """The task that received the last record, as far as this is known."""
        task = self._runs_in
        return self._called_by if task is None or task.done() else task

    def is_of_task_of(self, other: Iteration | None) -> bool:
        """Return whether two loops are identical, or belong to the same task."""
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
    """A batch, and which of its records user code has received.

    ``offsets`` has each record's number, counted over the shard's delivered records.
    """

    in_hand: int
    is_abandoned: bool

    def __init__(self, batch: FetchedBatch, offsets: Sequence[int]) -> None:
        self.batch: FetchedBatch = batch
        self.owned: OwnedShard = batch.owned
        self.offsets: Sequence[int] = offsets
        self.size: int = batch.size  # bytes that the batch takes in the buffer
        # The loop that received the batch's last delivered record, or None.
        self.iteration: Iteration | None = None
        # When user code received its present record; None if it has no record.
        self.busy_since: float | None = None
        # When a loop took the batch; None if no loop has it.
        self.taken_at: float | None = None
        self.in_hand = 0  # records handed out since the last request
        self.is_abandoned = False  # whether the task with these records has ended
        # The records that weren't handed out yet. How many were handed out follows from
        # the iterator's remaining length, so no code has to count each record.
        self.ahead: Iterator[Record] = iter(batch.records)
        self._count = len(batch)
        self._held_back = 0  # 1 if a record taken from ``ahead`` waits for the lease
        self._counted = 0

    @property
    def handed(self) -> int:
        """The number of the batch's records that were handed out."""
        return self._count - length_hint(self.ahead) - self._held_back

    @property
    def rest(self) -> int:
        """The number of the batch's records that weren't handed out yet."""
        return self._count - self.handed

    @property
    def has_rest(self) -> bool:
        """Return whether some records of the batch weren't handed out yet."""
        return self.handed < self._count

    @property
    def claimed(self) -> int:
        """The number of records that user code has received, or that a loop has."""
        return self.handed if self.is_free else self._count

    @property
    def is_free(self) -> bool:
        """Return whether a loop may take the rest of the batch's records."""
        return not self.in_hand and self.has_rest

    def work(self, thread: int) -> InFlightWork | None:
        """Return user code's work at the batch, or None if it has no record.

        ``thread`` is the id of the event loop's thread.
        """
        since, at = self.busy_since, self.owned.source
        if since is None:
            return None
        task = None if self.iteration is None else self.iteration.task
        what = f"user code at {at.stream} {at.shard_id}"
        return InFlightWork(since, what, lambda: task_stack(task, thread))

    def one_by_one(self) -> Iterator[Record]:
        """Begin to hand out the batch's remaining records, one at a time."""
        self.ahead = iter(self._rest())
        self._held_back, self.in_hand = 0, 1
        return self.ahead

    def keep_back(self) -> None:
        """Take back the last record, since the lease doesn't permit handing it out."""
        self._held_back, self.in_hand = 1, 0
        self.busy_since = None

    def hand_on(self) -> None:
        """Hand out the record that ``keep_back()`` took back."""
        self._held_back, self.in_hand = 0, 1

    def whole(self, now: float) -> Batch:
        """Hand out all remaining records of the batch at once."""
        rest = self._rest()
        self.ahead, self._held_back = iter(()), 0
        self.in_hand, self.busy_since = len(rest), now
        return self.batch.for_user(rest)

    def keep_back_from(self, batch: Batch, index: int) -> None:
        """Take back the records from an index of a batch that ``whole()`` returned."""
        self.ahead, self.in_hand = iter(batch.records[index:]), index
        if not index:
            self.busy_since = None

    def passed(self, now: float) -> None:
        """Record that user code has requested the next record or batch."""
        if self.taken_at is not None:
            self.owned.load.handler_seconds += now - self.taken_at
            self.taken_at = None
        self.in_hand, self.busy_since, self.is_abandoned = 0, None, False

    def drop_rest(self) -> None:
        """Stop handing out the batch's records."""
        deque(self.ahead, maxlen=0)

    def split(self, more: int = 0) -> DeliveredBatch:
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

    def unmarked(self) -> list[int]:
        """Return the indexes of the records that user code has but hasn't finished."""
        stop, is_done = self.handed, self.owned.progress.is_done
        in_hand = range(stop - self.in_hand, stop)
        return [index for index in in_hand if not is_done(self.offsets[index])]

    def part(self, indexes: Sequence[int]) -> DeliveredBatch:
        """Return some of the records as a new batch.

        The memory budget counts their bytes for the new batch, and not for this one.
        """
        records = [self.batch.records[index] for index in indexes]
        offsets = [self.offsets[index] for index in indexes]
        part = DeliveredBatch(self.batch.with_records(records), offsets)
        self.size -= part.size
        return part

    def orphaned(self) -> int:
        """Count the undone records before ``owned.handed_out`` that no loop has."""
        stop, progress = self.handed, self.owned.progress
        first = stop - (self.in_hand if self.is_abandoned else 0)
        before, count = self.owned.handed_out, 0
        for offset in self.offsets[first:]:
            if offset >= before:
                break
            count += not progress.is_done(offset)
        return count

    def log_task_failed(
        self, error: BaseException | None, count: int, fate: str
    ) -> None:
        """Log that a task ended with ``count`` undone records, and their fate.

        ``error`` is None if the task was cancelled.
        """
        logger.log(
            logging.INFO if error is None else logging.WARNING,
            "%s %s: a task ended (%s) with %d records in hand that aren't done: %s",
            self.owned.source.stream,
            self.owned.source.shard_id,
            "cancelled" if error is None else repr(error),
            count,
            fate,
            extra=self.owned.log_fields,
        )

    def sync_progress(self, telemetry: Telemetry, *, marks: bool) -> None:
        """Update the shard's progress and the counters of processed records.

        With ``marks``, mark the records that were handed out before user code's last
        request as done.
        """
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
            telemetry.count("records_processed", self.owned.key.stream_arn, new)
            telemetry.count("data_bytes_processed", self.owned.key.stream_arn, size)

    def _rest(self) -> list[Record]:
        handed, records = self.handed, self.batch.records
        if not handed:
            return records
        self.drop_rest()
        return records[handed:]


def next_free(
    batches: Iterable[DeliveredBatch], turns: Turns[OwnedShard, FetchedBatch]
) -> DeliveredBatch | None:
    """Return the free batch that is next in turn, or None if none is.

    A batch in ``turns`` may be next. Batches of revoked shards come first, because they
    are only dropped.
    """

    def last_turn(batch: DeliveredBatch) -> int:
        return -1 if batch.owned.revoked else turns.last_turn(batch.owned)

    first = min((each for each in batches if each.is_free), key=last_turn, default=None)
    if first is None or last_turn(first) > turns.next_turn:
        return None
    return first
