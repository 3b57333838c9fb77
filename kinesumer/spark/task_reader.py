"""Reads the ranges of a task on an executor, as Arrow batches."""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from kinesumer.consuming.prefetch import SMALL_PAGE_BYTES, PrefetchBuffer
from kinesumer.core.pacing import BYTES_PER_SECOND, PAGE_BYTES
from kinesumer.model.streams import Stream
from kinesumer.ports import StreamSource
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.process_cache import IteratorCache, Paces, new_paces, sources
from kinesumer.spark.range_fetcher import RangeFetcher, ReadContext
from kinesumer.spark.rows import Columns, cut, joined

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


# Spark gets no fewer rows at once, unless they are large: each batch has fixed costs.
# Chosen: a tenth of a page.
MIN_ROWS = 1_000
# Each shard has the bytes of a second. Chosen: a worker's memory bears those of 32.
MIN_WAITING_BYTES, MAX_WAITING_BYTES = 8 * BYTES_PER_SECOND, 32 * BYTES_PER_SECOND
# The share of a worker's memory that fetched records may take. The rest is needed for
# decoding, among other things. Chosen: rows are in memory several times.
WAITING_SHARE = 1 / 8
# glibc's greatest threshold. A page's largest buffer has about 10 MB.
RETAINED_BYTES = 32 << 20
MALLOPT_PARAMETERS = (-1, -3)  # glibc's M_TRIM_THRESHOLD and M_MMAP_THRESHOLD


def read(
    task: Task, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Return exactly the rows of a task's ranges, in order within each shard.

    Raises ConfigurationError for an unknown column, and DataLossError during iteration
    if a range can't be read completely.
    """
    worker = _worker(os.getpid())
    context = ReadContext(
        SystemClock(),
        random.Random(),
        worker.iterators,
        worker.paces,
        options,
        Columns(schema),
    )

    async def open_source(stream: Stream) -> StreamSource:
        shared = sources(options.connection)
        if stream.fan_out is None:
            return await shared.open(stream)
        return await shared.open_fan_out(stream)

    return TaskReader(worker.loop, context, task, open_source).batches()


class Worker(NamedTuple):
    """The state that a Spark worker retains from one task to the next."""

    loop: asyncio.AbstractEventLoop
    iterators: IteratorCache
    paces: Paces


@cache
def _worker(_process: int) -> Worker:
    """Return the state of this process. A forked process has its own state."""
    retain_freed_memory()
    caches = IteratorCache(), new_paces(SystemClock())
    return Worker(asyncio.new_event_loop(), *caches)


class TaskReader:
    """Fetches the shards of a task concurrently, and yields batches to Spark."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: ReadContext,
        task: Task,
        open_source: Callable[[Stream], Awaitable[StreamSource]],
    ) -> None:
        self._loop, self._context, self._task = loop, context, task
        self._open_source = open_source
        size = max_waiting_bytes(len(task.ranges), _memory_limit())
        self._budget = PrefetchBuffer(size)
        self._queue: asyncio.Queue[pa.RecordBatch | None] = asyncio.Queue()

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield batches until all ranges are read. Stop fetching when closed."""
        loop = self._loop
        fetching = loop.create_task(self._fetch_all())
        try:
            waiting: list[pa.RecordBatch] = []
            while (batch := loop.run_until_complete(self._queue.get())) is not None:
                waiting.append(batch)
                # Free the budget before Spark takes the batch: another fetch may need
                # the whole budget, and Spark takes nothing until there are more rows.
                self._budget.release(batch.nbytes)
                if _is_enough(waiting):
                    yield from self._timed(cut(joined(waiting)))
                    waiting.clear()
            loop.run_until_complete(fetching)
            if waiting:
                yield joined(waiting)
        finally:
            if not fetching.done():
                fetching.cancel()
                if not loop.is_running():
                    loop.run_until_complete(asyncio.wait([fetching]))

    def _timed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches, and measure how long Spark blocks all fetches meanwhile."""
        clock = self._context.clock
        for batch in batches:
            began = clock.now()
            yield batch
            self._context.paused_seconds += clock.now() - began

    async def _fetch_all(self) -> None:
        # The loop didn't run since the last task. Let it notice closed connections.
        await asyncio.sleep(0)
        streams = {stream.name: stream for stream in self._task.streams}
        try:
            await gather_or_cancel(
                self._fetch(range_, streams[range_.stream_arn])
                for range_ in self._task.ranges
            )
        finally:
            # Let the loop close the connections of subscriptions before it stops.
            await asyncio.sleep(0)
            self._queue.put_nowait(None)

    async def _fetch(self, range_: ShardRange, stream: Stream) -> None:
        fetcher = RangeFetcher(self._context, range_, stream, self._open_source)
        with closing(fetcher):
            while not fetcher.over:
                await self._fetch_page(fetcher)

    async def _fetch_page(self, fetcher: RangeFetcher) -> None:
        await fetcher.wait()
        reserved = max(SMALL_PAGE_BYTES, fetcher.page_bytes)
        await self._budget.reserve(reserved)
        queued = 0
        try:
            batch = await fetcher.turn()
            if batch is not None:
                queued = batch.nbytes
                self._queue.put_nowait(batch)
        finally:
            self._budget.release(reserved - queued)


def _is_enough(batches: list[pa.RecordBatch]) -> bool:
    rows: int = sum(batch.num_rows for batch in batches)
    size: int = sum(batch.nbytes for batch in batches)
    return rows >= MIN_ROWS or size >= PAGE_BYTES


def max_waiting_bytes(shards: int, memory_bytes: int | None) -> int:
    """Return the byte budget of a task that reads this number of shards.

    ``memory_bytes`` is the memory limit of the process, or None.
    """
    limit = MAX_WAITING_BYTES
    if memory_bytes is not None:
        limit = min(limit, int(memory_bytes * WAITING_SHARE))
    return max(MIN_WAITING_BYTES, min(limit, shards * BYTES_PER_SECOND))


def _memory_limit() -> int | None:
    """Return the memory limit of this process, which Spark may have set."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def retain_freed_memory() -> None:
    """Make glibc retain freed memory. Do nothing with other C libraries.

    A page needs buffers of megabytes. If glibc returned them to the kernel, page faults
    would take half the CPU time of reading records of 1 KB.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for parameter in MALLOPT_PARAMETERS:
        mallopt(parameter, RETAINED_BYTES)
