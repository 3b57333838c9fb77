"""Takes batches out of the buffer and brings them to a handler, shard by shard."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from anyio import CancelScope

from kinesumer.consuming.watchdog import Work, task_stack, thread_stack
from kinesumer.errors import HandlerFailedError
from kinesumer.handlers.executor import Gate, Worker
from kinesumer.handlers.failure_log import log_end
from kinesumer.handlers.failure_policy import Bury, StopClient, StopShard
from kinesumer.handlers.invokers import caller_for
from kinesumer.handlers.permits import Breath
from kinesumer.handlers.queues import ByKey, InOrder
from kinesumer.handlers.shard_queue import Lane
from kinesumer.handlers.tracing import Tracing, traced
from kinesumer.handlers.work_item import Stoppage
from kinesumer.runtime.failure_log import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Set
    from random import Random

    from kinesumer.aws.session import ClientFactory
    from kinesumer.consuming.owned_shard import Holding
    from kinesumer.consuming.prefetch import Batch, Buffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.dead_letters import DeadLetters
    from kinesumer.handlers.failure_policy import LastResort
    from kinesumer.handlers.options import Terms
    from kinesumer.handlers.queues import Queue
    from kinesumer.handlers.work_item import Stint
    from kinesumer.ports import Clock
    from kinesumer.telemetry.api import Telemetry

MOST_THREADS = 128
"""Plain functions that run at once; what waits for a thread makes no progress, but
isn't held to hang."""
CANCEL_SECONDS = 5.0
"""How long a handler that was cancelled may take to end."""


class Handling:
    """Lanes, one for each shard held: see ``delivery.Taker``."""

    def __init__(
        self, terms: Terms, *, app: str, clock: Clock, random: Random, drain: float
    ) -> None:
        self._runs_in: asyncio.Task[object] | None = None
        self.thread = 0
        self.letters: DeadLetters | None = None
        """Set before the first record comes, if the terms name a target."""
        self._terms = terms
        self._app = app
        self._clock = clock
        self._random = random
        self._drain_seconds = drain
        self._threads = ThreadPoolExecutor(MOST_THREADS, "kinesumer-handler")
        self._lanes: dict[Holding, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stints: dict[Stint, None] = {}
        """What user code has in hand, of shards given up, too."""
        self._warned: set[str] = set()
        self._closed = False
        self._fatal: BaseException | None = None
        self._worker: Worker
        self._buffer: Buffer | None = None
        self._hurry: Callable[[], None]
        self._telemetry: Telemetry

    def connect(
        self, buffer: Buffer, hurry: Callable[[], None], telemetry: Telemetry
    ) -> None:
        """Say where batches come from, and whom to tell that much was done."""
        self._buffer, self._hurry, self._telemetry = buffer, hurry, telemetry
        self.thread = threading.get_ident()

    async def open(self, clients: ClientFactory) -> None:
        """Open the target of dead letters. Raises what says that it can't be used."""
        from kinesumer.dead_letters.targets import open_target

        if self._terms.dead_letters is not None:
            self.letters = await open_target(self._terms.dead_letters, clients)

    def look_at(self, streams: Iterable[OpenStream]) -> None:
        """Warn of streams whose keys have no order that could be kept."""
        for stream in streams:
            known = stream.arn in self._warned or stream.info.routes_by_key
            if self._terms.concurrency > 1 and not known:
                self._warned.add(stream.arn)
                logger.warning(
                    "%s distributes records by AUTO: records of one key come in any "
                    "order, from several shards at once; concurrency=%d keeps no order",
                    stream.label,
                    self._terms.concurrency,
                    extra={"stream": stream.name},
                )

    # --- what the engine asks -------------------------------------------------------

    def oldest_work(self) -> Work | None:
        """Return what user code has been at for longest; None if it waits."""
        works = [_work(stint, self.thread) for stint in list(self._stints)]
        return min(filter(None, works), default=None, key=lambda work: work.since)

    def take_stock(self) -> None:
        """Bring the holdings of what is at hand up to date."""
        for lane in self._lanes.values():
            lane.take_stock()

    def is_in_use_beside(self, task: asyncio.Task[object] | None) -> bool:
        """Tell whether ``run()`` goes on in another task than this one."""
        running = self._runs_in
        return running is not None and running is not task and not running.done()

    def close(self, fatal: BaseException | None = None) -> None:
        """End ``run()``, with the error that says why, if any."""
        self._closed = True
        self._fatal = self._fatal or fatal
        for lane in list(self._lanes.values()):
            lane.end()
        if self._buffer is not None:
            self._buffer.wake()

    # --- running --------------------------------------------------------------------

    async def run(self, start: Callable[[], Awaitable[None]]) -> None:
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

    async def _handle_all(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start, and return when closed and all is over that user code had in hand."""
        try:
            await start()
            if not self._closed:
                self._worker = self._new_worker()
            while (batch := await self._next()) is not None:
                lane = self._lane(batch.holding)
                lane.put(batch)
                self._employ(lane)
        except asyncio.CancelledError:
            self.close()
            # A thread can't be cancelled: others would handle what it is still at.
            with CancelScope(shield=True):
                at_work = {s.task for s in self._stints if s.task and s.thread}
                await self._finish(at_work)
            raise
        finally:
            self.close()
        await self._finish(self._tasks)

    async def _next(self) -> Batch | None:
        """Return the next batch; None at the end."""
        while not self._closed:
            assert self._buffer is not None
            batch = await self._buffer.get()
            if batch is not None:
                return batch
        return None

    def _lane(self, holding: Holding) -> Lane:
        lane = self._lanes.get(holding)
        if lane is None:
            assert self._buffer is not None
            queue = self._new_queue()
            lane = Lane(holding, queue, self._buffer, self._telemetry, self._hurry)
            if holding.revoked or self._closed:
                lane.end()
                return lane
            self._lanes[holding] = lane
            holding.on_revoked = lambda: self._end(lane)
        return lane

    def _end(self, lane: Lane) -> None:
        lane.end()
        if not lane.stints:
            self._lanes.pop(lane.holding, None)

    def _employ(self, lane: Lane) -> None:
        """Let as many work at a shard as are wanted and find something to do."""
        while len(lane.stints) < self._terms.concurrency:
            stint = lane.begin()
            if stint is None:
                return
            task = asyncio.get_running_loop().create_task(self._work(lane, stint))
            self._tasks.add(task)
            task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.close(error)

    async def _work(self, lane: Lane, stint: Stint | None) -> None:
        task = asyncio.current_task()
        while stint is not None:
            self._stints[stint] = None
            stint.task = task
            try:
                await self._worker.handle(stint)
            except Stoppage:
                pass
            except (SystemExit, KeyboardInterrupt) as error:
                if self._closed:
                    raise
                self.close(error)  # out of a task it would end the event loop at once
            except asyncio.CancelledError:
                if not self._closed:
                    self._fail(stint, _cancelled(stint))
                raise
            except Exception as error:
                self._fail(stint, error)
                return
            finally:
                del self._stints[stint]
                lane.finish(stint)
            stint = lane.begin()
            # What this one has ended may let others begin.
            self._employ(lane)
        if lane.holding.revoked and not lane.stints:
            self._lanes.pop(lane.holding, None)

    def _fail(self, stint: Stint, error: Exception) -> None:
        """End ``run()`` with an error, unless another one has ended it."""
        if self._fatal is None:
            log_end(stint, error)
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
        if self._terms.concurrency == 1:
            return InOrder()
        whole = self._terms.handler.takes_batches
        return ByKey(self._terms.concurrency, whole=whole)

    def _new_worker(self) -> Worker:
        terms, handler = self._terms, self._terms.handler
        whole = handler.takes_batches
        if terms.traceparent is not None and not whole:
            handler = traced(handler, self._telemetry, terms.traceparent)
        breath = Breath(self._clock, self._busy_since)
        gate = Gate(self._clock, breath)
        return Worker(
            caller_for(handler, self._clock, breath, self._threads),
            gate,
            terms.retries,
            self._new_last_resort(gate),
            self._random,
            Tracing(self._telemetry, terms.traceparent, links=whole),
            one_by_one=not whole,
        )

    def _new_last_resort(self, gate: Gate) -> LastResort:
        match self._terms.on_failure:
            case "stop-shard":
                return StopShard()
            case "stop-client":
                return StopClient()
            case "dead-letter":
                assert self.letters is not None
                return Bury(
                    self.letters,
                    self._app,
                    self._clock,
                    self._random,
                    gate,
                    self._telemetry,
                )


def _cancelled(stint: Stint) -> HandlerFailedError:
    batch = stint.batch
    return HandlerFailedError(
        f"user code at stream {batch.stream}, {batch.shard_id} cancelled the task that "
        "run() calls it in: nothing of the shard would be handled any more; the "
        "checkpoint stands before what it was at"
    )


def _work(stint: Stint, loop_thread: int) -> Work | None:
    """Return what a stint is at; called from any thread."""
    since, task, thread = stint.since, stint.task, stint.thread
    if since is None:
        return None
    batch = stint.batch
    what = f"{stint.doing} at {batch.stream} {batch.shard_id}"
    if thread:
        return Work(since, what, lambda: thread_stack(thread))
    return Work(since, what, lambda: task_stack(task, loop_thread))
