"""Takes batches out of the buffer and brings them to a handler, shard by shard."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from kinesumer.consuming.watchdog import InFlightWork, task_stack, thread_stack
from kinesumer.errors import HandlerFailedError
from kinesumer.handlers.executor import HandlerExecutor
from kinesumer.handlers.failure_log import log_end
from kinesumer.handlers.failure_policy import (
    DeadLetterPolicy,
    StopClientPolicy,
    StopShardPolicy,
)
from kinesumer.handlers.invokers import invoker_for
from kinesumer.handlers.permits import Gate, LoopYielder
from kinesumer.handlers.queues import KeyedQueue, OrderedQueue
from kinesumer.handlers.shard_queue import ShardQueue, ShardStopped
from kinesumer.handlers.tracing import Tracing, traced
from kinesumer.runtime.failure_log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Set
    from random import Random

    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.checkpointer import CommitRequester
    from kinesumer.consuming.delivery_protocol import Starter
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.dead_letters import DeadLetters
    from kinesumer.handlers.failure_policy import FailurePolicy
    from kinesumer.handlers.options import RunOptions
    from kinesumer.handlers.queues import Queue
    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Telemetry

MOST_THREADS = 128
"""Plain functions that run at once; what waits for a thread makes no progress, but
isn't held to hang."""
CANCEL_SECONDS = 5.0
"""How long a handler that was cancelled may take to end."""


class HandlerRunner:
    """Call a handler with records, through one queue per owned shard."""

    def __init__(
        self,
        options: RunOptions,
        *,
        app: str,
        clock: Clock,
        random: Random,
        drain: float,
    ) -> None:
        self._runs_in: asyncio.Task[object] | None = None
        self.thread = 0
        self.letters: DeadLetters | None = None
        """Set before the first record comes, if the options name a target."""
        self._options = options
        self._app = app
        self._clock = clock
        self._random = random
        self._drain_seconds = drain
        self._threads = ThreadPoolExecutor(MOST_THREADS, "kinesumer-handler")
        self._queues: dict[OwnedShard, ShardQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._items: dict[WorkItem, None] = {}
        """What user code has in hand, of shards given up, too."""
        self._warned: set[str] = set()
        self._closed = False
        self._fatal: BaseException | None = None
        self._worker: HandlerExecutor
        self._buffer: PrefetchBuffer | None = None
        self._checkpointer: CommitRequester
        self._telemetry: Telemetry

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
        """Open the target of dead letters. Raises what says that it can't be used."""
        from kinesumer.dead_letters.targets import open_target

        if self._options.dead_letters is not None:
            self.letters = await open_target(self._options.dead_letters, clients)

    def warn_unsupported(self, streams: Iterable[OpenStream]) -> None:
        """Warn of streams whose keys have no order that could be kept."""
        for stream in streams:
            known = stream.arn in self._warned or stream.info.routes_by_key
            if self._options.concurrency > 1 and not known:
                self._warned.add(stream.arn)
                logger.warning(
                    "%s distributes records by AUTO: records of one key come in any "
                    "order, from several shards at once; concurrency=%d keeps no order",
                    stream.label,
                    self._options.concurrency,
                    extra={"stream": stream.name},
                )

    # --- what the engine asks -------------------------------------------------------

    def oldest_work(self) -> InFlightWork | None:
        """Return what user code has been at for longest; None if it waits."""
        works = [_work(item, self.thread) for item in list(self._items)]
        return min(filter(None, works), default=None, key=lambda work: work.since)

    def sync_progress(self) -> None:
        """Bring the owned shards of what is at hand up to date."""
        for queue in self._queues.values():
            queue.sync_progress()

    def is_in_use_beside(self, task: asyncio.Task[object] | None) -> bool:
        """Tell whether ``run()`` goes on in another task than this one."""
        running = self._runs_in
        return running is not None and running is not task and not running.done()

    def close(self, fatal: BaseException | None = None) -> None:
        """End ``run()``, with the error that says why, if any."""
        self._closed = True
        self._fatal = self._fatal or fatal
        for queue in list(self._queues.values()):
            queue.end()
        if self._buffer is not None:
            self._buffer.wake()

    # --- running --------------------------------------------------------------------

    async def run(self, start: Starter) -> None:
        """Start, then handle records until closed. Raises what ends it.

        User code may finish what it has at the end, as long as a hand-over waits.
        """
        self._runs_in = asyncio.current_task()
        try:
            await self._handle_all(start)
        finally:
            with CancelScope(shield=True):  # else anyio cancels each await in here
                await self._end_all()
        if self._fatal is not None:
            raise self._fatal

    async def _end_all(self) -> None:
        try:
            await self._cancel()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)
            if self.letters is not None:
                await self.letters.aclose()
            self._runs_in = None

    async def _handle_all(self, start: Starter) -> None:
        """Start, and return when closed and all is over that user code had in hand."""
        try:
            await start()
            if not self._closed:
                self._worker = self._new_worker()
            while (batch := await self._next()) is not None:
                queue = self._queue_of(batch.owned)
                queue.put(batch)
                self._start_workers(queue)
        except asyncio.CancelledError:
            self.close()
            # A thread can't be cancelled: others would handle what it is still at.
            with CancelScope(shield=True):
                at_work = {s.task for s in self._items if s.task and s.thread}
                await self._finish(at_work)
            raise
        finally:
            self.close()
        await self._finish(self._tasks)

    async def _next(self) -> FetchedBatch | None:
        """Return the next batch; None at the end."""
        while not self._closed:
            assert self._buffer is not None
            batch = await self._buffer.get()
            if batch is not None:
                return batch
        return None

    def _queue_of(self, owned: OwnedShard) -> ShardQueue:
        queue = self._queues.get(owned)
        if queue is None:
            assert self._buffer is not None
            queue = ShardQueue(
                owned,
                self._new_queue(),
                self._buffer,
                self._telemetry,
                self._checkpointer,
            )
            if owned.revoked or self._closed:
                queue.end()
                return queue
            self._queues[owned] = queue
            owned.listener = self
        return queue

    def shard_revoked(self, owned: OwnedShard) -> None:
        """Give user code nothing more of this shard."""
        queue = self._queues[owned]
        queue.end()
        if not queue.items:
            del self._queues[owned]

    def _start_workers(self, queue: ShardQueue) -> None:
        """Let as many work at a shard as are wanted and find something to do."""
        while len(queue.items) < self._options.concurrency:
            item = queue.begin()
            if item is None:
                return
            task = asyncio.get_running_loop().create_task(self._work(queue, item))
            self._tasks.add(task)
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.close(error)

    async def _work(self, queue: ShardQueue, item: WorkItem | None) -> None:
        task = asyncio.current_task()
        while item is not None:
            self._items[item] = None
            item.task = task
            try:
                await self._worker.handle(item)
            except ShardStopped:
                pass
            except (SystemExit, KeyboardInterrupt) as error:
                if self._closed:
                    raise
                self.close(error)  # out of a task it would end the event loop at once
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
            item = queue.begin()
            # What this one has ended may let others begin.
            self._start_workers(queue)
        if queue.owned.revoked and not queue.items:
            self._queues.pop(queue.owned, None)

    def _fail(self, item: WorkItem, error: Exception) -> None:
        """End ``run()`` with an error, unless another one has ended it."""
        if self._fatal is None:
            log_end(item, error)
        self.close(error)

    async def _finish(self, tasks: Set[asyncio.Task[Any]]) -> None:
        """Wait for what user code has in hand."""
        if tasks:
            await asyncio.wait(tasks, timeout=self._drain_seconds)

    async def _cancel(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=CANCEL_SECONDS)
        if late:
            logger.error(
                "%d handlers go on though they were cancelled; what they had isn't "
                "committed",
                len(late),
            )

    def _busy_since(self) -> float | None:
        work = self.oldest_work()
        return None if work is None else work.since

    # --- what it is made of ---------------------------------------------------------

    def _new_queue(self) -> Queue:
        if self._options.concurrency == 1:
            return OrderedQueue()
        whole = self._options.handler.takes_batches
        return KeyedQueue(self._options.concurrency, whole=whole)

    def _new_worker(self) -> HandlerExecutor:
        options, handler = self._options, self._options.handler
        whole = handler.takes_batches
        if options.traceparent is not None and not whole:
            handler = traced(handler, self._telemetry, options.traceparent)
        yielder = LoopYielder(self._clock, self._busy_since)
        gate = Gate(self._clock, yielder)
        return HandlerExecutor(
            invoker_for(handler, self._clock, yielder, self._threads),
            gate,
            options.retries,
            self._new_failure_policy(gate),
            self._random,
            Tracing(self._telemetry, options.traceparent, links=whole),
            one_by_one=not whole,
        )

    def _new_failure_policy(self, gate: Gate) -> FailurePolicy:
        match self._options.on_failure:
            case "stop-shard":
                return StopShardPolicy()
            case "stop-client":
                return StopClientPolicy()
            case "dead-letter":
                assert self.letters is not None
                return DeadLetterPolicy(
                    self.letters,
                    self._app,
                    self._clock,
                    self._random,
                    gate,
                    self._telemetry,
                )


def _cancelled(item: WorkItem) -> HandlerFailedError:
    source = item.queue.owned.source
    return HandlerFailedError(
        f"the handler at stream {source.stream}, {source.shard_id} cancelled the task "
        "that run() calls it in, which would stop the shard; the checkpoint is before "
        "the record that it had. Remove the call of cancel() from the handler"
    )


def _work(item: WorkItem, loop_thread: int) -> InFlightWork | None:
    """Return what an item is at; called from any thread."""
    since, task, thread = item.busy_since, item.task, item.thread
    if since is None:
        return None
    source = item.queue.owned.source
    what = f"{item.activity} at {source.stream} {source.shard_id}"
    if thread:
        return InFlightWork(since, what, lambda: thread_stack(thread))
    return InFlightWork(since, what, lambda: task_stack(task, loop_thread))
