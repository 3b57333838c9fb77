"""Take batches out of the buffer, and call a handler with their records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Set
from random import Random
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from kinesumer.consuming.assignment_callbacks import LAST_SECONDS, AssignmentCallbacks
from kinesumer.consuming.delivery_protocol import (
    DeliveryProtocol,
    EngineParts,
    Starter,
)
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.watchdog import InFlightWork, task_stack, thread_stack
from kinesumer.decoding.decoders import DecompressionRoom
from kinesumer.errors import HandlerFailedError
from kinesumer.handlers.failure_policy import log_end
from kinesumer.handlers.handler import StreamHandlers
from kinesumer.handlers.invokers import Gate
from kinesumer.handlers.shard_queue import ShardQueue, ShardStopped, WorkItem
from kinesumer.handlers.stream_callers import SharedParts, StreamCaller, StreamCallers
from kinesumer.model.times import Until
from kinesumer.ports import Clock
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import MAX_THREADS, Threads
from kinesumer.telemetry.history import History

if TYPE_CHECKING:
    # This import is slow.
    from kinesumer.aws.session import ClientFactory


class HandlerRunner(DeliveryProtocol):
    """Calls the handlers of streams, through one queue per owned shard."""

    def __init__(
        self,
        handlers: StreamHandlers,
        *,
        app: str,
        clock: Clock,
        random: Random,
        drain: float,
        callbacks: AssignmentCallbacks | None = None,
        until: Until | None = None,
        history: History | None = None,
        acks_by_return: bool = True,
    ) -> None:
        """Without ``acks_by_return``, user code acknowledges records by itself."""
        self.callbacks, self.until = callbacks, until
        self._runs_in: asyncio.Task[object] | None = None
        self.callers: StreamCallers = StreamCallers(
            handlers, app, random, history, acks_by_return=acks_by_return
        )
        self._clock = clock
        self._drain_seconds = drain
        self._threads = Threads(MAX_THREADS, "kinesumer-handler")
        self._queues: dict[OwnedShard, ShardQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # The items that user code is handling, including items of shards that were
        # given up. The watchdog's thread copies this dict, so each change must be
        # atomic.
        self._items: dict[WorkItem, None] = {}
        self._closed = False
        self._fatal: BaseException | None = None

    def connect(self, parts: EngineParts) -> None:
        """Set the parts of the client."""
        super().connect(parts)
        gate = Gate(self._clock, self._busy_since)
        room = DecompressionRoom(parts.buffer.limit)
        shared = SharedParts(self._clock, gate, self._threads, parts.telemetry, room)
        self.callers.connect(shared)

    async def open(self, clients: ClientFactory) -> None:
        """Keep the AWS clients for the targets of dead letters."""
        self.callers.clients = clients

    async def add_streams(
        self,
        streams: Iterable[OpenStream],
        handlers: Mapping[Any, object] | None = None,
    ) -> None:
        """Prepare the handlers of streams: see ``StreamCallers.add()``."""
        await self.callers.add(streams, handlers)

    # --- what the engine asks -------------------------------------------------------

    def oldest_work(self) -> InFlightWork | None:
        """Return the oldest running call of user code, or None."""
        works = [_in_flight(item, self.thread) for item in list(self._items)]
        return min(filter(None, works), default=None, key=lambda work: work.since)

    def sync_progress(self) -> None:
        """Update the progress of the shards that have queues."""
        for queue in self._queues.values():
            queue.sync_progress()

    def has_dead_letters(self, stream_arn: str) -> bool:
        """Return whether a stream has a target of dead letters."""
        return self.callers.by_arn[stream_arn].options.dead_letters is not None

    def has_records(self, owned: OwnedShard, *, waiting: bool) -> bool:
        """Return whether handlers have records of a shard, or get more of them."""
        queue = self._queues.get(owned)
        if queue is None:
            return False
        return bool(queue.work.in_hand) or (waiting and queue.work.waiting_bytes > 0)

    def is_in_use_beside(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether ``run()`` is running in a task other than ``task``."""
        running = self._runs_in
        return running is not None and running is not task and not running.done()

    def close(self, fatal: BaseException | None = None) -> None:
        """End ``run()``. If ``fatal`` is given, ``run()`` raises it."""
        self._closed = True
        self._fatal = self._fatal or fatal
        for queue in list(self._queues.values()):
            queue.end()
        if self._parts is not None:
            self._parts.buffer.wake()

    # --- running --------------------------------------------------------------------

    async def run(self, start: Starter) -> None:
        """Call ``start``, and handle records until ``close()``. Raises a fatal error.

        At the end, running handlers have ``drain`` seconds to finish.
        """
        self._runs_in = asyncio.current_task()
        try:
            await self._handle_all(start)
        finally:
            with CancelScope(shield=True):  # keep anyio from cancelling each await
                await self._end_all()
        if self._fatal is not None:
            raise self._fatal

    async def _end_all(self) -> None:
        try:
            await self._cancel()
        finally:
            # Don't wait for the threads: one handler that hangs would prevent the end.
            self._threads.close()
            await self.callers.aclose()
            self._runs_in = None

    async def _handle_all(self, start: Starter) -> None:
        """Call ``start``, and handle batches until ``close()``. Wait for handlers."""
        try:
            await start()
            while (batch := await self._next()) is not None:
                caller = self.callers.by_arn[batch.owned.key.stream_arn]
                queue = self._queue_of(batch.owned, caller)
                queue.put(batch)
                self._start_workers(queue, caller)
        except asyncio.CancelledError:
            self.close()
            # Threads can't be cancelled. Wait for them, since otherwise other clients
            # would repeat the records that they are handling.
            with CancelScope(shield=True):
                at_work = {s.task for s in self._items if s.task and s.thread}
                await self._finish(at_work)
            raise
        finally:
            self.close()
        await self._finish(self._tasks)

    async def _next(self) -> FetchedBatch | None:
        """Return the next batch, or None after ``close()``."""
        while not self._closed:
            assert self._parts is not None
            batch = await self._parts.buffer.get()
            if batch is not None:
                return batch
        return None

    def _queue_of(self, owned: OwnedShard, caller: StreamCaller) -> ShardQueue:
        queue = self._queues.get(owned)
        if queue is None:
            assert self._parts is not None
            queue = ShardQueue(owned, caller.new_queue, self._parts)
            # A shard may be given up while its batch waits in the buffer.
            if owned.revoked or self._closed:
                queue.end()
                return queue
            self._queues[owned] = queue
            owned.on_revocation = self._revoked
        return queue

    def _revoked(self, owned: OwnedShard) -> None:
        """Deliver no more records of this shard."""
        queue = self._queues[owned]
        queue.end()
        if not queue.work.in_hand:
            del self._queues[owned]

    def _start_workers(self, queue: ShardQueue, caller: StreamCaller) -> None:
        """Start workers for a shard while it has work and permits more workers."""
        while len(queue.work.in_hand) < caller.options.concurrency:
            item = queue.work.begin()
            if item is None:
                return
            task = asyncio.get_running_loop().create_task(
                self._work(queue, caller, item)
            )
            self._tasks.add(task)
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.close(error)

    async def _work(
        self, queue: ShardQueue, caller: StreamCaller, item: WorkItem | None
    ) -> None:
        task = asyncio.current_task()
        while item is not None:
            self._items[item] = None
            item.task = task
            try:
                await caller.executor.handle(item)
            except ShardStopped:
                pass
            except (SystemExit, KeyboardInterrupt) as error:
                if self._closed:
                    raise
                self.close(error)  # raising it would end the event loop
            except asyncio.CancelledError:
                if not self._closed:
                    self._fail(item, _cancelled(item))
                raise
            except Exception as error:
                self._fail(item, error)
                return
            finally:
                del self._items[item]
                queue.finish(item)
            # Take the next item before other workers can, so that this task is reused.
            item = queue.work.begin()
            # The finished item may permit other items to begin.
            self._start_workers(queue, caller)
        if queue.owned.revoked and not queue.work.in_hand:
            self._queues.pop(queue.owned, None)

    def _fail(self, item: WorkItem, error: Exception) -> None:
        """End ``run()`` with this error, unless an earlier error has ended it."""
        if self._fatal is None:
            log_end(item, error)
        self.close(error)

    async def _finish(self, tasks: Set[asyncio.Task[Any]]) -> None:
        """Wait until these handlers end, or until the drain time is over."""
        if tasks:
            await asyncio.wait(tasks, timeout=self._drain_seconds)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=LAST_SECONDS)
        if late:
            logger.error(
                "%d handlers continue although they were cancelled; their records "
                "aren't committed",
                len(late),
            )

    def _busy_since(self) -> float | None:
        work = self.oldest_work()
        return None if work is None else work.since


def _cancelled(item: WorkItem) -> HandlerFailedError:
    source = item.queue.owned.source
    return HandlerFailedError(
        f"the handler at stream {source.stream}, {source.shard_id} cancelled the task "
        "that run() calls it in, which would stop the shard; the checkpoint is before "
        "the record that it had. Remove the call of cancel() from the handler"
    )


def _in_flight(item: WorkItem, loop_thread: int) -> InFlightWork | None:
    """Return the running call of user code for an item. Any thread may call this."""
    since, task, thread = item.busy_since, item.task, item.thread
    if since is None:
        return None
    source = item.queue.owned.source
    what = f"{item.activity} at {source.stream} {source.shard_id}"
    if thread:
        return InFlightWork(since, what, lambda: thread_stack(thread))
    return InFlightWork(since, what, lambda: task_stack(task, loop_thread))
