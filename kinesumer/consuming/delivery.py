"""Deliver records to tasks that iterate, and keep track of what is done.

The lease is checked right before each record.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from kinesumer.consuming.delivered_batch import DeliveredBatch, Iteration
from kinesumer.consuming.watchdog import InFlightWork, task_stack
from kinesumer.core.loop_share import yield_seconds
from kinesumer.errors import ConfigurationError
from kinesumer.runtime.clock import LoopLag
from kinesumer.runtime.failure_log import logger

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        Iterable,
    )

    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.checkpointer import CommitRequester
    from kinesumer.consuming.delivered_batch import UserTask
    from kinesumer.consuming.delivery_protocol import Starter
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record
    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Telemetry

PAUSE_SECONDS = 0.05
YIELD_EVERY_SECONDS = 0.05
"""How often the event loop's other tasks run, even if user code never awaits. Without
this, nothing would be committed or released before the end of a batch."""
YIELD_STEPS = 10
"""Steps of the loop each time: enough to receive an answer and send a request."""


class RecordDelivery:
    """The batches that user code is processing, each with the loop that has it.

    With ``acks_by_asking`` a request for the next record acknowledges all records
    before it, so only one task may iterate. Otherwise each loop has its own batch.
    """

    _shares_loop = True
    """Whether user code runs on the event loop."""

    def __init__(self, clock: Clock, *, acks_by_asking: bool) -> None:
        self.thread = 0
        self.records = 0
        """Records handed out in batches that are finished."""
        self._clock = clock
        self._buffer: PrefetchBuffer | None = None
        self._checkpointer: CommitRequester
        self._telemetry: Telemetry
        self._auto = acks_by_asking
        self._batches: list[DeliveredBatch] = []
        """The batches taken from the buffer that aren't finished."""
        self._waiting_tasks: list[UserTask | None] = []
        """The tasks that wait for a batch."""
        self._last: Iteration | None = None
        """The loop that requested a record last."""
        self._left_since: float | None = None
        """When the last loop was cancelled or left; None while a loop is at work."""
        self._watched: set[UserTask] = set()
        self._lag = LoopLag(lambda: self._clock.now(), self._busy_since)
        self._yield_at = 0.0
        self._closed = False
        self._fatal: BaseException | None = None

    def connect(
        self,
        buffer: PrefetchBuffer,
        checkpointer: CommitRequester,
        telemetry: Telemetry,
    ) -> None:
        """Set where batches come from, and what commits early when much is done."""
        self._buffer, self._telemetry = buffer, telemetry
        self._checkpointer = checkpointer
        self.thread = threading.get_ident()

    async def open(self, clients: ClientFactory) -> None:
        """Do nothing: iteration needs no AWS client."""

    def warn_unsupported(self, streams: Iterable[OpenStream]) -> None:
        """Do nothing: every stream supports iteration."""

    # --- what the engine asks -------------------------------------------------------

    def oldest_work(self) -> InFlightWork | None:
        """Return the oldest work of user code; None if it has none."""
        works = [self._work(delivered) for delivered in list(self._batches)]
        oldest = min(filter(None, works), default=None, key=lambda work: work.since)
        since = self._left_since
        if oldest is None and since is not None and not self._waiting_tasks:
            what = "the loop over records, whose task was cancelled or left it,"
            return InFlightWork(since, what, lambda: task_stack(None, self.thread))
        return oldest

    def _work(self, delivered: DeliveredBatch) -> InFlightWork | None:
        since, at = delivered.busy_since, delivered.owned.source
        if since is None:
            return None
        task = None if delivered.iteration is None else delivered.iteration.task
        what = f"user code at {at.stream} {at.shard_id}"
        return InFlightWork(since, what, lambda: task_stack(task, self.thread))

    def _busy_since(self) -> float | None:
        since = [h.busy_since for h in self._batches if h.busy_since is not None]
        return min(since, default=None)

    def is_in_use_beside(self, task: UserTask | None) -> bool:
        """Return whether a task other than this one may have records."""
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
        """Update the owned shards by what user code has done."""
        for delivered in self._batches:
            delivered.sync_progress(self._telemetry, marks=self._auto)
        for delivered in self._batches:
            self._count_orphaned(delivered.owned)

    # --- handing out ----------------------------------------------------------------

    async def iterate(
        self, start: Starter, iteration: Iteration
    ) -> AsyncGenerator[Record, None]:
        """Start, then yield records; each request acknowledges the record before."""
        try:
            await start()
            now = self._clock.now
            while (delivered := await self._take(iteration)) is not None:
                owned, lease = delivered.owned, delivered.owned.lease
                due = self._yield_at
                for record in delivered.one_by_one():
                    moment = now()
                    if moment >= lease.deadline or owned.revoked or moment >= due:
                        delivered.keep_back()
                        break
                    delivered.busy_since = moment
                    yield record
        finally:
            self._left(iteration)

    async def iterate_batches(
        self, start: Starter, iteration: Iteration
    ) -> AsyncGenerator[Batch, None]:
        """Start, then yield batches; each request acknowledges the batch before."""
        try:
            await start()
            while (batch := await self.next_batch(iteration)) is not None:
                yield batch
        finally:
            self._left(iteration)

    async def next_batch(self, iteration: Iteration) -> Batch | None:
        """Return the next batch; the request acknowledges the one before."""
        delivered = await self._take(iteration)
        return None if delivered is None else delivered.whole(self._clock.now())

    async def _take(self, iteration: Iteration) -> DeliveredBatch | None:
        """Finish what the loop has in hand, and wait for its next batch.

        The rest of a batch that a loop left comes first. Return None at the end.
        """
        task = asyncio.current_task()
        self._check_alone(iteration)
        self._waiting_tasks.append(task)
        try:
            self._note(iteration, task)
            self._pass(iteration)
            return await self._next(iteration)
        except asyncio.CancelledError:
            self._left_since = self._clock.now()
            raise
        finally:
            self._waiting_tasks.remove(task)

    def _check_alone(self, iteration: Iteration) -> None:
        if self._auto and any(t and not t.cancelling() for t in self._waiting_tasks):
            raise ConfigurationError(
                f"two tasks iterate over {iteration.what}: asking for the next one "
                "acknowledges the one before, which the other task may still have. Let "
                'one task iterate, use run(), or Config(commit="manual")'
            )

    async def _next(self, iteration: Iteration) -> DeliveredBatch | None:
        while True:
            if self._shares_loop and self._clock.now() >= self._yield_at:
                await self._yield_to_loop()
            if self._closed:
                break
            delivered = next(
                (delivered for delivered in self._batches if delivered.is_free), None
            )
            if delivered is None:
                assert self._buffer is not None
                waits = self._buffer.is_empty
                if (batch := await self._buffer.get()) is not None:
                    self._take_in(batch)
                if waits:  # so that the loop has run
                    self._yield_at = self._clock.now() + YIELD_EVERY_SECONDS
            elif await self._permitted(delivered.owned):
                if delivered.is_free:  # else another task took it meanwhile
                    self._begin(delivered, iteration)
                    return delivered
            elif delivered.is_free:
                delivered.owned.dropped += delivered.orphaned()
                self._end(delivered)
        if self._fatal is not None:
            raise self._fatal
        return None

    def _begin(self, delivered: DeliveredBatch, iteration: Iteration) -> None:
        delivered.iteration = iteration
        if self._shares_loop:
            self._lag.start()

    def _take_in(self, batch: FetchedBatch) -> None:
        assert self._buffer is not None
        owned = batch.owned
        if not owned.revoked:
            first = owned.progress.deliver(batch.records, batch.end)
            if batch.records:
                offsets = range(first, first + len(batch))
                self._batches.append(DeliveredBatch(batch, offsets))
                return
        self._buffer.give_back(owned, batch.size)

    def _pass(self, iteration: Iteration) -> None:
        """Record that a loop and its task are done with what they had in hand."""
        self._last, self._left_since = iteration, None
        for delivered in list(self._batches):
            if self._auto or iteration.is_of_task_of(delivered.iteration):
                delivered.passed()
                if self._closed or not delivered.has_rest:
                    self._end(delivered)

    def _end(self, delivered: DeliveredBatch) -> None:
        """Remove a finished batch, and release its bytes."""
        delivered.sync_progress(self._telemetry, marks=self._auto)
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
        of_it = (delivered for delivered in self._batches if delivered.owned is owned)
        owned.set_orphaned(
            owned.dropped + sum(delivered.orphaned() for delivered in of_it)
        )

    # --- loops that were left, and tasks that ended -----------------------------------

    def note_caller(self, iteration: Iteration) -> None:
        """Record that the current task begins a loop, or requests its next item."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop runs yet
            return
        iteration.called(task)
        self._watch(task)

    def _note(self, iteration: Iteration, task: UserTask | None) -> None:
        iteration.runs(task)
        self._watch(task)

    def _watch(self, task: UserTask | None) -> None:
        if task is not None and task not in self._watched:
            self._watched.add(task)
            task.add_done_callback(self._task_ended)

    def _left(self, iteration: Iteration) -> None:
        """Release the bytes of what a closed loop had.

        With ``acks_by_asking`` the record in hand stays in hand: the next request
        acknowledges it.
        """
        if self._auto:
            return
        for delivered in list(self._batches):
            if delivered.iteration is iteration:
                delivered.busy_since = None
                self._left_since = self._clock.now()
                if delivered.has_rest:
                    kept, rest = delivered, delivered.split()
                    self._batches.insert(self._batches.index(kept) + 1, rest)
                self._give_back(delivered)
        self._wake_waiting()

    def _task_ended(self, task: UserTask) -> None:
        """Take back what an ended task had in hand."""
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
        elif self._auto and not self._closed:
            return  # it may have returned the record to a task that is still at it
        delivered.busy_since, self._left_since = None, self._clock.now()
        if self._auto:
            delivered.is_abandoned = True
        else:
            delivered.passed()
            delivered.iteration = None
            if not delivered.has_rest:
                self._end(delivered)
        self._count_orphaned(delivered.owned)

    def _task_failed(
        self, delivered: DeliveredBatch, error: BaseException | None
    ) -> None:
        """Keep what a failed task had in hand and didn't acknowledge, and log it."""
        left = delivered.unmarked()
        if not left:
            return
        if not self._auto:
            self._batches.insert(self._batches.index(delivered), delivered.part(left))
        if self._closed or delivered.owned.revoked:
            fate = "the shard's next owner delivers them again"
        elif self._auto:
            fate = "the next task that asks for records marks them as done"
        else:
            fate = "they are delivered again"
        logger.log(
            logging.INFO if error is None else logging.WARNING,
            "%s %s: a task ended (%s) with %d records in hand that aren't done: %s",
            delivered.owned.source.stream,
            delivered.owned.source.shard_id,
            "cancelled" if error is None else repr(error),
            len(left),
            fate,
            extra=delivered.owned.log_fields,
        )

    def _wake_waiting(self) -> None:
        """Let waiting tasks see the batches that became available."""
        if self._waiting_tasks and self._buffer is not None:
            self._buffer.wake()

    # --- pauses ---------------------------------------------------------------------

    async def _yield_to_loop(self) -> None:
        """Let other tasks run, for longer if user code blocked the loop for long."""
        seconds = yield_seconds(self._lag.seconds())
        for _ in range(YIELD_STEPS):
            await asyncio.sleep(0)
        if seconds:
            await asyncio.sleep(seconds)
        self._yield_at = self._clock.now() + YIELD_EVERY_SECONDS

    async def _permitted(self, owned: OwnedShard) -> bool:
        """Wait while the lease has lapsed; False if the shard was given up."""
        while not (owned.revoked or self._closed):
            if owned.lease.permits(self._clock.now()):
                return True
            self.sync_progress()
            await asyncio.sleep(PAUSE_SECONDS)
        self.sync_progress()
        return False
