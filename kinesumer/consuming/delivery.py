"""Deliver records to tasks that iterate, and keep track of which are done.

The lease is checked right before each record is delivered.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from kinesumer.consuming.delivered_batch import (
    DeliveredBatch,
    Iteration,
    current_task,
    next_free,
)
from kinesumer.consuming.record_limit import RecordLimit
from kinesumer.consuming.watchdog import InFlightWork, task_stack
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.errors import ConfigurationError
from kinesumer.runtime.clock import LoopLag, yield_to_loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.assignment_callbacks import AssignmentCallbacks
    from kinesumer.consuming.checkpointer import CommitRequester
    from kinesumer.consuming.delivered_batch import UserTask
    from kinesumer.consuming.delivery_protocol import Starter
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.records import Batch, Record
    from kinesumer.model.times import Until
    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Telemetry

PAUSE_SECONDS = 0.05


class RecordDelivery:
    """Delivers batches to the user's loops, and knows which loop has which batch.

    With ``acks_by_asking`` a request for the next record acknowledges all records
    before it, so only one task may iterate. Otherwise each loop has its own batch.
    """

    _shares_loop = True  # whether user code runs on the client's event loop

    def __init__(self, clock: Clock, *, acks_by_asking: bool) -> None:
        self.thread: int = 0
        self.records: int = 0  # records handed out in batches that are finished
        self.acks_by_asking = acks_by_asking
        self.limit: RecordLimit = RecordLimit()
        self.until: Until | None = None
        self.callbacks: AssignmentCallbacks | None = None
        self._clock = clock
        self._buffer: PrefetchBuffer | None = None
        self._checkpointer: CommitRequester
        self._telemetry: Telemetry
        # The unfinished batches that were taken from the buffer.
        self._batches: list[DeliveredBatch] = []
        # The tasks that wait for a batch.
        self._waiting_tasks: list[UserTask | None] = []
        self._last: Iteration | None = None  # the loop that requested a record last
        # When the last loop was cancelled or left; None while a loop runs.
        self._left_since: float | None = None
        self._watched: set[UserTask] = set()
        self._lag = LoopLag(lambda: self._clock.now(), self._busy_since)
        self._yield_at = 0.0
        # The isolated shard whose record user code received last.
        self._isolated: OwnedShard | None = None
        self._closed = False
        self._fatal: BaseException | None = None

    def connect(
        self,
        buffer: PrefetchBuffer,
        checkpointer: CommitRequester,
        telemetry: Telemetry,
    ) -> None:
        """Set the buffer to read from, and the object that takes requests to commit."""
        self._buffer, self._telemetry = buffer, telemetry
        self._checkpointer = checkpointer
        self.thread = threading.get_ident()

    async def open(self, clients: ClientFactory) -> None:
        """Do nothing: iteration needs no AWS client."""

    async def add_streams(
        self,
        streams: Iterable[OpenStream],
        handlers: Mapping[Any, object] | None = None,
    ) -> None:
        """Do nothing: every stream supports iteration, which calls no handlers.

        Raises ConfigurationError if there are handlers.
        """
        if handlers is not None:
            raise ConfigurationError(
                "consume() calls no handlers: give refresh() only the streams"
            )

    @property
    def buffer_bytes(self) -> int:
        """The memory limit of the buffer, which decompressed data has, too."""
        assert self._buffer is not None
        return self._buffer.limit

    # --- the engine's side ----------------------------------------------------------

    def oldest_work(self) -> InFlightWork | None:
        """Return user code's work that began first, or None if it has no work."""
        works = [each.work(self.thread) for each in list(self._batches)]
        oldest = min(filter(None, works), default=None, key=lambda work: work.since)
        since = self._left_since
        if oldest is None and since is not None and not self._waiting_tasks:
            what = "the loop over records, whose task was cancelled or left it,"
            return InFlightWork(since, what, lambda: task_stack(None, self.thread))
        return oldest

    def _busy_since(self) -> float | None:
        since = [h.busy_since for h in self._batches if h.busy_since is not None]
        return min(since, default=None)

    def has_dead_letters(self, stream_arn: str) -> bool:
        """Return False: a loop over records has no target of dead letters."""
        return False

    def is_in_use_beside(self, task: UserTask | None) -> bool:
        """Return whether a task other than ``task`` may have records."""
        loops = [self._last, *(delivered.iteration for delivered in self._batches)]
        tasks = [loop.task for loop in loops if loop is not None]
        return any(t is not None and t is not task and not t.done() for t in tasks)

    def close(self, fatal: BaseException | None = None) -> None:
        """End the iteration, with StopAsyncIteration or with an error."""
        self._closed = True
        self._fatal = self._fatal or fatal
        if self._buffer is not None:
            self._buffer.wake()

    def reopen(self) -> None:
        """Allow iteration again, after a failed start closed it."""
        self._closed, self._fatal = False, None

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has processed."""
        for each in self._batches:
            each.sync_progress(self._telemetry, marks=self.acks_by_asking)
        for each in self._batches:
            self._count_orphaned(each.owned)

    def has_records(self, owned: OwnedShard, *, waiting: bool) -> bool:
        """Return whether user code has records of a shard, or gets more of them."""
        batches = [each for each in self._batches if each.owned is owned]
        return bool(batches) if waiting else any(each.in_hand for each in batches)

    # --- delivery -------------------------------------------------------------------

    async def iterate(
        self, start: Starter, iteration: Iteration
    ) -> AsyncGenerator[Record[Any], None]:
        """Start the client if necessary, then yield records."""
        try:
            await start()
            now = self._clock.now
            while (delivered := await self._take(iteration)) is not None:
                owned, lease = delivered.owned, delivered.owned.lease
                due = self._yield_at
                # The hot path: no call for a record except the clock's.
                for record in delivered.one_by_one():
                    time = now()
                    if time >= lease.deadline or owned.revoked or time >= due:
                        delivered.keep_back()
                        break
                    delivered.busy_since = time
                    yield record
        finally:
            self._left(iteration)

    async def iterate_batches(
        self, start: Starter, iteration: Iteration
    ) -> AsyncGenerator[Batch[Any], None]:
        """Start the client if necessary, then yield batches."""
        try:
            await start()
            while (batch := await self.next_batch(iteration)) is not None:
                yield batch
        finally:
            self._left(iteration)

    async def next_batch(self, iteration: Iteration) -> Batch | None:
        """Finish the loop's last batch. Return the next, or None after ``close()``."""
        delivered = await self._take(iteration)
        return None if delivered is None else delivered.whole(self._clock.now())

    async def _take(self, iteration: Iteration) -> DeliveredBatch | None:
        """Finish the loop's last batch. Return its rest, the next, or None."""
        task = asyncio.current_task()
        self._check_alone(iteration)
        self._waiting_tasks.append(task)
        try:
            iteration.runs(task)
            self._watch(task)
            self._pass(iteration)
            return await self._next(iteration)
        except asyncio.CancelledError:
            self._left_since = self._clock.now()
            raise
        finally:
            self._waiting_tasks.remove(task)

    def _check_alone(self, iteration: Iteration) -> None:
        is_awaited = any(t and not t.cancelling() for t in self._waiting_tasks)
        if self.acks_by_asking and is_awaited:
            raise ConfigurationError(
                f"two tasks iterate over {iteration.what}: asking for the next one "
                "acknowledges the one before, which the other task may still have; let "
                'one task iterate, or use run() or Config(commit="manual")'
            )

    async def _next(self, iteration: Iteration) -> DeliveredBatch | None:
        while True:
            if self._shares_loop and self._clock.now() >= self._yield_at:
                await yield_to_loop(self._lag.seconds())
                self._yield_at = self._clock.now() + TURN_SECONDS
            if self._isolated is not None:
                await self._until_stored(self._isolated)
            if self._closed or self._remaining() <= 0:
                break
            assert self._buffer is not None
            turns = self._buffer.turns
            delivered = next_free(self._batches, turns)
            if delivered is None:
                waits = self._buffer.is_empty
                if (batch := await self._buffer.get()) is not None:
                    self._take_in(batch)
                if waits:  # other tasks have run during the wait
                    self._yield_at = self._clock.now() + TURN_SECONDS
            elif await self._permitted(delivered.owned):
                # If the batch isn't free, another task has taken it.
                if delivered.is_free and (remaining := self._remaining()) > 0:
                    if delivered.rest > remaining:
                        self._split(delivered, int(remaining))
                    delivered.iteration = iteration
                    delivered.taken_at = self._clock.now()
                    turns.begin(delivered.owned)
                    if delivered.owned.suspects is not None and self.acks_by_asking:
                        self._isolated = delivered.owned
                    if self._shares_loop:
                        self._lag.start()
                    return delivered
            elif delivered.is_free:
                delivered.owned.dropped += delivered.orphaned()
                self._end(delivered)
        if self._fatal is not None:
            raise self._fatal
        if not self._closed:  # the limit is reached
            self._left_since = self._clock.now()
            self._wake_waiting()
        return None

    async def _until_stored(self, owned: OwnedShard) -> None:
        """Wait until an isolated record's position is stored.

        If another record killed the process before that, the row would name both.
        """
        self._isolated = None
        while owned.suspects is not None and owned.suspects.is_in_turn:
            # A record that was kept back isn't done, and is handed out again.
            if owned.revoked or self._closed or not owned.is_finished:
                return
            if await owned.all_stored(PAUSE_SECONDS):
                await asyncio.sleep(0)  # let the reader run, which ends the turn

    def _remaining(self) -> float:
        return self.limit.remaining(self.records, self._batches)

    def _split(self, delivered: DeliveredBatch, more: int = 0) -> None:
        """Free the records that weren't handed out, except for ``more``."""
        self._batches.insert(self._batches.index(delivered) + 1, delivered.split(more))

    def _take_in(self, batch: FetchedBatch) -> None:
        owned = batch.owned
        if not owned.revoked:
            first = owned.progress.deliver(batch.records, batch.end)
            if batch.records:
                offsets = range(first, first + len(batch))
                self._batches.append(DeliveredBatch(batch, offsets))
                return
        assert self._buffer is not None
        self._buffer.give_back(owned, batch.size)

    def _pass(self, iteration: Iteration) -> None:
        """Record that the task of a loop has finished the records that it received."""
        self._last, self._left_since = iteration, None
        for delivered in list(self._batches):
            if self.acks_by_asking or iteration.is_of_task_of(delivered.iteration):
                delivered.passed(self._clock.now())
                delivered.owned.note_change()
                if self._closed or not delivered.has_rest:
                    self._end(delivered)

    def ack_in_hand(self) -> None:
        """Acknowledge what user code has, unless commits are manual."""
        if not self.acks_by_asking:
            raise ConfigurationError(
                'ack=True has no meaning with Config(commit="manual"): use client.ack()'
            )
        if self._last is not None:
            self._pass(self._last)
        self._left_since = self._clock.now()

    def _end(self, delivered: DeliveredBatch) -> None:
        """Remove a finished batch, and release the batch's bytes."""
        delivered.sync_progress(self._telemetry, marks=self.acks_by_asking)
        self._batches.remove(delivered)
        self._count_orphaned(delivered.owned)
        self.records += delivered.handed
        delivered.drop_rest()
        self._give_back(delivered)
        if delivered.owned.wants_commit:
            self._checkpointer.commit_soon()

    def _give_back(self, delivered: DeliveredBatch) -> None:
        size, delivered.size = delivered.size, 0
        assert self._buffer is not None
        self._buffer.give_back(delivered.owned, size)

    def _count_orphaned(self, owned: OwnedShard) -> None:
        batches = (each for each in self._batches if each.owned is owned)
        owned.set_orphaned(owned.dropped + sum(each.orphaned() for each in batches))

    # --- loops that were left, and tasks that ended -----------------------------------

    def note_caller(self, iteration: Iteration) -> None:
        """Record that the current task begins a loop, or requests its next item."""
        task = current_task()
        iteration.called(task)
        self._watch(task)

    def _watch(self, task: UserTask | None) -> None:
        if task is not None and task not in self._watched:
            self._watched.add(task)
            task.add_done_callback(self._task_ended)

    def _left(self, iteration: Iteration) -> None:
        """Release the bytes of a closed loop's records.

        With ``acks_by_asking``, the loop's last record stays unfinished until the next
        request acknowledges it.
        """
        if self.acks_by_asking:
            return
        for delivered in list(self._batches):
            if delivered.iteration is iteration:
                delivered.busy_since = None
                self._left_since = self._clock.now()
                if delivered.has_rest:
                    self._split(delivered)
                self._give_back(delivered)
        self._wake_waiting()

    def _task_ended(self, task: UserTask) -> None:
        """Take back the records of a task that has ended."""
        self._watched.discard(task)
        for delivered in list(self._batches):
            had_by = None if delivered.iteration is None else delivered.iteration.task
            if had_by is not None and had_by.done() and delivered.in_hand:
                self._take_back(delivered, had_by)
        self._wake_waiting()

    def _take_back(self, delivered: DeliveredBatch, task: UserTask) -> None:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or error is not None:
            self._task_failed(delivered, error)
        elif self.acks_by_asking and not self._closed:
            return  # the record may have gone to a task that still runs
        delivered.busy_since, self._left_since = None, self._clock.now()
        # With ``acks_by_asking``, the next request still acknowledges the record.
        if self.acks_by_asking:
            delivered.is_abandoned = True
        else:
            delivered.passed(self._clock.now())
            delivered.iteration = None
            if not delivered.has_rest:
                self._end(delivered)
        self._count_orphaned(delivered.owned)

    def _task_failed(
        self, delivered: DeliveredBatch, error: BaseException | None
    ) -> None:
        """Log and keep the records that a failed task didn't acknowledge."""
        left = delivered.unmarked()
        if not left:
            return
        if not self.acks_by_asking:
            self._batches.insert(self._batches.index(delivered), delivered.part(left))
        if self._closed or delivered.owned.revoked:
            fate = "the shard's next owner delivers them again"
        elif self.acks_by_asking:
            fate = "the next task that asks for records marks them as done"
        else:
            fate = "they are delivered again"
        delivered.log_task_failed(error, len(left), fate)

    def _wake_waiting(self) -> None:
        """Notify waiting tasks of the batches that became available."""
        if self._waiting_tasks and self._buffer is not None:
            self._buffer.wake()

    # --- pauses ---------------------------------------------------------------------

    async def _permitted(self, owned: OwnedShard) -> bool:
        """Wait for a valid lease. Return False if the shard is given up meanwhile."""
        while not (owned.revoked or self._closed):
            if owned.lease.permits(self._clock.now()):
                if owned.suspects is None or owned.suspects.due is None:
                    return True
                await owned.suspects.note_due()
                continue
            self.sync_progress()
            await asyncio.sleep(PAUSE_SECONDS)
        self.sync_progress()
        return False
