"""Call a handler with the records of one event of Lambda, within the event's time.

A handler gets records here as it gets them from ``run()``. Lambda takes the part of the
client: it reads the shards, and keeps their positions. For example, an event has the
records 1 to 5 of a shard. If the record 3 fails after all attempts, the invocation
reports 3, and Lambda's next event for this shard begins with 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from kinesumer.config import Config
from kinesumer.consuming.delivery_protocol import EngineParts
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
from kinesumer.core.liveness import Lease
from kinesumer.decoding.decoders import DecompressionRoom
from kinesumer.errors import ConfigurationError, FatalError
from kinesumer.handlers.failure_policy import FailurePolicy, log_end, report_to_lambda
from kinesumer.handlers.handler import RunOptions, StreamHandlers
from kinesumer.handlers.invokers import Gate
from kinesumer.handlers.retry_policy import RetryPolicy
from kinesumer.handlers.shard_queue import (
    Failure,
    NoTimeError,
    ShardQueue,
    ShardStopped,
    WorkItem,
)
from kinesumer.handlers.stream_callers import SharedParts, StreamCaller, StreamCallers
from kinesumer.model.records import Record, memory_size
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ports import Clock
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import Threads
from kinesumer.telemetry.api import Telemetry

# Time that is kept for the end: to cancel handlers, and to send the answer. Chosen: a
# sixth of the three seconds that Lambda gives a function by default.
ANSWER_SECONDS = 0.5
# The part of it that cancelled handlers have to clean up.
CANCEL_SECONDS = 0.25
# Errors that Lambda should count as errors of the function, as no record causes them.
FATAL = (ConfigurationError, FatalError)


class Resources(NamedTuple):
    """The values that the invocations of one process share."""

    options: RunOptions
    callers: StreamCallers
    threads: Threads
    telemetry: Telemetry
    clock: Clock
    app: str


class ShardResult(NamedTuple):
    """The number of a shard's done records, and the first one that is not done."""

    done: int
    failed: Record | None
    error: BaseException | None  # what ended the shard, unless a record did


async def handle_records(
    shared: Resources, records: Sequence[Record], seconds: float
) -> list[ShardResult]:
    """Call the handler with records of one or more shards, for up to ``seconds``.

    Return the results of the shards, in the order in which they begin. Raise an error
    of the configuration, or another fatal one, if no record was handled before it. Also
    raise what ends the process, such as SystemExit.
    """
    deadline = shared.clock.now() + seconds
    buffer = PrefetchBuffer(Config().buffer_bytes)
    room = DecompressionRoom(buffer.limit)
    # A new gate: while the process was frozen, nothing ran, and nothing was late.
    gate = Gate(shared.clock, lambda: None)
    clock, threads, telemetry = shared.clock, shared.threads, shared.telemetry
    shared.callers.connect(SharedParts(clock, gate, threads, telemetry, room))
    caller = await shared.callers.new_caller(
        shared.options, lambda policy: _within_time(policy, shared.options)
    )
    parts = EngineParts(buffer, lambda: None, telemetry)
    shards = [
        _Shard(shared, key, own, caller, parts, deadline)
        for key, own in by_shard(records)
    ]
    tasks = {work for shard in shards for work in shard.start()}
    await _until(tasks, deadline, clock, shards)
    results = [shard.result() for shard in shards]
    nothing_done = not any(result.done for result in results)
    for error in filter(None, (result.error for result in results)):
        is_fatal = nothing_done and isinstance(error, FATAL)
        if is_fatal or not isinstance(error, Exception):
            raise error
    return results


def by_shard(records: Iterable[Record]) -> Iterable[tuple[ShardKey, list[Record]]]:
    """Return each shard with its records, in the order in which the shards begin."""
    found: dict[ShardKey, list[Record]] = {}
    for record in records:
        found.setdefault(record.fence.shard, []).append(record)
    return found.items()


async def _until(
    tasks: set[asyncio.Task[None]],
    deadline: float,
    clock: Clock,
    shards: Sequence[_Shard],
) -> None:
    """Wait for tasks until the deadline. Then end the shards, and cancel the tasks."""
    if tasks:
        await asyncio.wait(tasks, timeout=max(0.0, deadline - clock.now()))
    late = {task for task in tasks if not task.done()}
    for shard in shards:
        shard.queue.end()
    for task in late:
        task.cancel()
    if late:
        _, late = await asyncio.wait(late, timeout=CANCEL_SECONDS)
    if late:
        logger.error(
            "%d calls of the handler continue after the function's time, although "
            "they were cancelled: their records are repeated meanwhile",
            len(late),
        )


class _Shard:
    """The records of one shard in an event, and the tasks that handle them."""

    def __init__(
        self,
        shared: Resources,
        key: ShardKey,
        records: list[Record],
        caller: StreamCaller,
        parts: EngineParts,
        deadline: float,
    ) -> None:
        row = ShardRow(key, 0, HASH_KEYS - 1, Start.TRIM_HORIZON)
        lease = Lease("", deadline)
        owned = OwnedShard(shared.app, row, lease, len(records))
        self.queue = _InvocationQueue(owned, caller.new_queue, parts, shared.clock.now)
        self._records, self._caller = records, caller
        self._error: BaseException | None = None
        arrived = records[-1].approximate_arrival_timestamp
        behind = 0.0 if arrived is None else shared.clock.wall() - arrived
        size = memory_size(records)
        # What was put into the queue gives these bytes back.
        parts.buffer.release(-size)
        batch = FetchedBatch(records, max(0, int(behind * 1000)), size, None, owned)
        parts.buffer.put(batch)
        self.queue.put(batch)

    def start(self) -> list[asyncio.Task[None]]:
        """Start as many workers as the handler may have for a shard."""
        # All keys of the records are known, so a worker that finds nothing is done.
        loop, workers = asyncio.get_running_loop(), self._caller.options.concurrency
        count = min(workers, len(self._records))
        return [loop.create_task(self._work()) for _ in range(count)]

    async def _work(self) -> None:
        while (item := self.queue.work.begin()) is not None:
            try:
                item.task = asyncio.current_task()
                await self._caller.executor.handle(item)
            except ShardStopped:
                return
            except (SystemExit, KeyboardInterrupt) as error:
                # Raising it here would end the event loop.
                self._error = error
                self.queue.end()
                return
            except Exception as error:
                self._fail(item, error)
                return
            finally:
                self.queue.finish(item)

    def _fail(self, item: WorkItem, error: Exception) -> None:
        self._error = item.queue.owned.stopped_by = error
        self.queue.end()
        log_end(item, error, "Lambda repeats a shard's records")

    def result(self) -> ShardResult:
        """Return what is done now. A thread may still handle a record."""
        self.queue.sync_progress()
        owned, records = self.queue.owned, self._records
        done = owned.progress.done
        failed = records[done] if done < len(records) else None
        if failed is not None and owned.stopped_by is None:
            logger.warning(
                "the function's time ends after %d of %d records of stream %s, %s; "
                "Lambda repeats the others. Set a longer timeout, or smaller batches",
                done,
                len(records),
                owned.source.stream,
                owned.source.shard_id,
                extra=owned.log_fields,
            )
        return ShardResult(done, failed, self._error)


class _InvocationQueue(ShardQueue):
    """A shard's queue whose waits end with the time of the invocation."""

    def __init__(self, *arguments: Any) -> None:
        *rest, self._now = arguments
        super().__init__(*rest)

    async def sleep(self, seconds: float) -> None:
        """Wait this long. Raises NoTimeError at once if the time does not suffice."""
        if self._now() + seconds >= self.owned.lease.deadline:
            raise NoTimeError
        await super().sleep(seconds)


def _within_time(policy: FailurePolicy, options: RunOptions) -> FailurePolicy:
    """Return a policy that gives a record up only after its attempts.

    If the time ends before, Lambda begins its next event with this record, which gets
    all attempts then. But a record with which an event began would not get more time.
    """

    async def act(item: WorkItem, failure: Failure) -> None:
        is_first = item.offsets[item.done] == 0
        is_final = is_first or had_all_attempts(failure, options.retries)
        if options.dead_letters is None or not is_final:
            await report_to_lambda(item, failure)
        await policy(item, failure)

    return act


def had_all_attempts(failure: Failure, retries: RetryPolicy) -> bool:
    """Return whether a record was tried as often as its policy says."""
    if isinstance(failure.error, retries.non_retryable):
        return True
    return failure.calls >= retries.max_attempts


def new_callers(options: RunOptions, app: str, random: Random) -> StreamCallers:
    """Return what makes the callers of one handler, for any stream."""
    return StreamCallers(StreamHandlers((), {}, options, {}), app, random, None)
