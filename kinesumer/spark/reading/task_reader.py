"""Reads the ranges of a task on an executor, as Arrow batches."""

from __future__ import annotations

import asyncio
import os
import random
from functools import cache, partial
from typing import TYPE_CHECKING

from kinesumer.runtime.clock import SystemClock
from kinesumer.spark.columnar.arrow import Columns, cut, joined
from kinesumer.spark.reading.memory import (
    ByteBudget,
    max_waiting_bytes,
    retain_freed_memory,
)
from kinesumer.spark.reading.range_fetcher import RangeFetcher, ReadContext
from kinesumer.spark.runtime.shard_cache import IteratorCache, PaceCache
from kinesumer.spark.runtime.sources import sources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kinesumer.model.streams import Stream
    from kinesumer.ports import StreamSource
    from kinesumer.spark.options.parser import ReadOptions
    from kinesumer.spark.planning.tasks import Task

UNKNOWN_PAGE_BYTES = 4_000_000
SMALL_PAGE_BYTES = 64_000
MIN_ROWS = 1_000
BATCH_BYTES = 4_000_000
"""Rows of so many bytes make a batch even if there are fewer than MIN_ROWS."""


def read(
    task: Task, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Return the rows of exactly a task's ranges, for each shard in order.

    Raises ConfigurationError for an unknown column, and DataLossError during iteration
    if a range can't be read completely.
    """
    worker = _worker(os.getpid())
    world = ReadContext(
        SystemClock(),
        random.Random(),
        worker.iterators,
        worker.paces,
        options,
        Columns(schema),
    )

    async def open_source(stream: Stream) -> StreamSource:
        return await sources(options.connection).open(stream)

    return TaskReader(worker.loop, world, task, open_source).batches()


class Worker:
    """State that a process retains from one task to the next."""

    def __init__(self) -> None:
        retain_freed_memory()
        self.loop = asyncio.new_event_loop()
        self.iterators = IteratorCache()
        self.paces = PaceCache()


@cache
def _worker(_process: int) -> Worker:
    """Return the worker state of this process. Spark forks its workers."""
    return Worker()


class TaskReader:
    """Fetches the shards of a task concurrently, and yields batches to Spark."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        world: ReadContext,
        task: Task,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
    ) -> None:
        self._loop, self._context, self._task = loop, world, task
        self._open_source = open_source
        self._room = ByteBudget(_max_waiting_bytes(task), loop.create_future)
        self._queue: asyncio.Queue[pa.RecordBatch | None] = asyncio.Queue()

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield batches until all ranges are read. Closing it stops fetching."""
        fetching = self._loop.create_task(self._fetch_all())
        try:
            waiting: list[pa.RecordBatch] = []
            while (batch := self._next()) is not None:
                waiting.append(batch)
                # Spark owns the batch now: a fetch may need the whole budget.
                self._room.release(batch.nbytes)
                if _is_enough(waiting):
                    yield from self._timed(cut(joined(waiting)))
                    waiting.clear()
            self._loop.run_until_complete(fetching)
            if waiting:
                yield joined(waiting)
        finally:
            self._stop(fetching)

    def _next(self) -> pa.RecordBatch | None:
        return self._loop.run_until_complete(self._queue.get())

    def _timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and add up the time in which Spark blocks all fetches."""
        clock = self._context.clock
        for batch in batches:
            began = clock.now()
            yield batch
            self._context.paused_seconds += clock.now() - began

    def _stop(self, fetching: asyncio.Task[None]) -> None:
        if fetching.done():
            return
        fetching.cancel()
        if not self._loop.is_running():
            self._loop.run_until_complete(asyncio.wait([fetching]))

    async def _fetch_all(self) -> None:
        # Let the loop notice connections that were closed since the last task.
        await asyncio.sleep(0)
        try:
            async with asyncio.TaskGroup() as group:
                for given in self._task.ranges:
                    stream = self._stream(given.stream_arn)
                    opening = partial(self._open_source, stream)
                    fetch = RangeFetcher(self._context, given, opening)
                    group.create_task(self._fetch(fetch))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._queue.put_nowait(None)

    def _stream(self, arn: str) -> Stream:
        return next(stream for stream in self._task.streams if stream.name == arn)

    async def _fetch(self, fetch: RangeFetcher) -> None:
        while not fetch.over:
            await fetch.wait()
            reserved = max(SMALL_PAGE_BYTES, fetch.page_bytes or UNKNOWN_PAGE_BYTES)
            await self._room.reserve(reserved)
            kept = 0
            try:
                batch = await fetch.turn()
                if batch is not None:
                    kept = batch.nbytes
                    self._queue.put_nowait(batch)
            finally:
                self._room.release(reserved - kept)


def _max_waiting_bytes(task: Task) -> int:
    """Return the byte budget of this process, whose memory Spark may limit."""
    try:
        import resource
    except ImportError:  # Windows
        return max_waiting_bytes(len(task.ranges), None)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    unlimited = limit == resource.RLIM_INFINITY
    return max_waiting_bytes(len(task.ranges), None if unlimited else limit)


def _is_enough(batches: list[pa.RecordBatch]) -> bool:
    rows: int = sum(batch.num_rows for batch in batches)
    size: int = sum(batch.nbytes for batch in batches)
    return rows >= MIN_ROWS or size >= BATCH_BYTES
