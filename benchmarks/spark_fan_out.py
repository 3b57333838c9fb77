"""Compare polling with a subscription for one shard's range of a batch.

    python -m benchmarks.spark_fan_out

The embedded AWS has AWS's limits of reads and its delay of events. Prints the seconds
until a task has the range's last row: alone, and beside three readers that poll the
shard as often as AWS allows one reader.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StructField, StructType

from benchmarks.report import Report
from kinesumer import Stream
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.errors import SourceThrottledError
from kinesumer.model.positions import BEGINNING, After, Position
from kinesumer.model.streams import Start
from kinesumer.spark.options.parser import connection_from, parse_read
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.task_reader import read
from kinesumer.testing import EmbeddedAws, background
from kinesumer.testing.kinesis.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = (1_000_000, 4_000_000, 16_000_000)
RECORD_BYTES = 1_000
ROUNDS = 3
READERS = 3
SHARD = "shardId-000000000000"
SCHEMA = StructType([StructField("data", BinaryType())])


def main() -> None:
    """Print a table."""
    limits = Limits(write_records_per_second=1e9, write_bytes_per_second=1e12)
    with background(EmbeddedAws(limits=limits)) as aws:
        os.environ.update(aws.environment())
        report = Report("seconds to read a range of one shard: polled, by subscription")
        for size in SIZES:
            name = f"stream-{size}"
            task = prepared(aws, name, size)
            alone = times(task)
            with polled_by_others(task.streams[0].name):
                shared = times(task)
            report.note(f"{size:,} B", f"{alone[0]:.2f}  {alone[1]:.2f}")
            what = f"  beside {READERS} readers"
            report.note(what, f"{shared[0]:.2f}  {shared[1]:.2f}")
        report.print()


def prepared(aws: EmbeddedAws, name: str, size: int) -> Task:
    """Put records, register a consumer, and return the task that reads the records."""
    arn = aws.create_stream(name, shards=1)
    for _ in range(size // RECORD_BYTES):
        _, number = aws.put(name, b"x" * RECORD_BYTES)
    time.sleep(0.2)  # longer than the delay of events
    last = After(Position(number), time.time())
    consumer_arn = asyncio.run(registered(arn))
    range_ = ShardRange(arn, SHARD, BEGINNING, last, 86_400.0, size)
    return Task((Stream(arn, fan_out=consumer_arn),), (range_,))


async def registered(arn: str) -> str:
    """Register a consumer of a stream, and return its ARN."""
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream(arn))
        return (await StreamConsumers(source).require_active("billing")).arn


def times(task: Task) -> tuple[float, float]:
    """Return the median seconds of a task by polling and by a subscription."""
    options = parse_read({"streams": "any"}, connection_from({}))
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for subscribes, seconds in found.items():
            time.sleep(5.5)  # until the shard's limits are free again
            ranges = (replace(task.ranges[0], subscribes=subscribes),)
            began = time.monotonic()
            rows = sum(
                batch.num_rows
                for batch in read(Task(task.streams, ranges), options, SCHEMA)
            )
            seconds.append(time.monotonic() - began)
            assert rows * RECORD_BYTES == task.ranges[0].estimated_bytes
    return median(found[False]), median(found[True])


@contextmanager
def polled_by_others(arn: str) -> Iterator[None]:
    """Let other readers poll the stream's shard during the block."""
    stop = threading.Event()
    threads = [
        threading.Thread(target=lambda: asyncio.run(poll(arn, stop)))
        for _ in range(READERS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


async def poll(arn: str, stop: threading.Event) -> None:
    """Read the shard's tip five times a second."""
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream(arn))
        iterator: str | None = await source.get_iterator(SHARD, Start.LATEST)
        while not stop.is_set() and iterator is not None:
            try:
                page = await source.get_records(iterator, 10_000)
                iterator = page.next_iterator
            except SourceThrottledError:
                pass
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    main()
