"""Simulate tasks that read a stream in memory, in virtual time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Generator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kinesumer.model.positions import BEGINNING, After, Position, ShardPosition
from kinesumer.model.records import Page
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import Clock, Reservation
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.process_cache import IteratorCache, new_paces
from kinesumer.spark.range_fetcher import ReadContext
from kinesumer.spark.rows import Columns
from kinesumer.spark.task_reader import TaskReader
from kinesumer.testing.memory import MemoryKinesis, MemorySource
from tests.support.faulty import FaultySource
from tests.support.jumping_loop import EPOCH, JumpingLoop

TYPES = {
    "string": StringType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
DAY = 86400.0


def schema(*names: str) -> StructType:
    return StructType([StructField(name, TYPES[COLUMNS[name]]) for name in names])


class RecordedSource(FaultySource):
    """Records each call with its time. ``mishap`` may raise an error instead."""

    def __init__(self, source: MemorySource) -> None:
        super().__init__(source)
        self.calls: list[tuple[str, float]] = []
        self.mishap: Callable[[str, int], None] = lambda call, count: None
        self.released: list[str] = []

    def fail(self, error: Exception, *counts: int, call: str = "") -> None:
        """Let all calls fail with an error, or only the calls with these numbers."""

        def fail(made: str, count: int) -> None:
            if call in ("", made) and (not counts or count in counts):
                raise error

        self.mishap = fail

    def _note(self, call: str) -> None:
        self.calls.append((call, self.kinesis.clock.now()))
        self.mishap(call, self.count(call))

    def release(self, shard_id: str) -> None:
        self.released.append(shard_id)

    def count(self, call: str) -> int:
        return sum(made == call for made, _ in self.calls)

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        self._note("iterator")
        return await super().get_iterator(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        self._note("records")
        return await super().get_records(iterator, limit, room)


class Bench:
    """One stream of two shards, in virtual time."""

    def __init__(self, shards: int = 2, reads_per_second: int = 5) -> None:
        self.loop = JumpingLoop()
        self.executor_clock: Clock = self.loop
        self.kinesis = MemoryKinesis(self.loop, reads_per_second=reads_per_second)
        self.stream = self.kinesis.create_stream("orders", shards)
        self.source = RecordedSource(self.kinesis.source("orders"))
        self.pushed = RecordedSource(self.kinesis.source("orders"))
        self.iterators = IteratorCache()
        self.paces = new_paces(self.loop)
        self.numbers: defaultdict[str, list[str]] = defaultdict(list)

    def put(self, count: int, data: Callable[[int], bytes] = b"%d".__mod__) -> None:
        for place in range(count):
            shard, number = self.kinesis.put("orders", data(place), f"key-{place}")
            self.numbers[shard].append(number)

    def after(self, shard: str, place: int, sub: int | None = None) -> After:
        """Return the offset just after a record, given by its place in a shard."""
        return After(Position(self.numbers[shard][place], sub), EPOCH)

    def task(
        self,
        *pairs: tuple[str, ShardPosition, ShardPosition],
        hours: float = 24,
        subscribes: bool = False,
    ) -> Task:
        """Return a task that reads ranges, each given as (shard, first, last)."""
        arn = self.stream.arn
        ranges = [
            ShardRange(arn, *pair, hours * 3600, subscribes=subscribes)
            for pair in pairs
        ]
        fan_out = f"{arn}/consumer/billing:1" if subscribes else None
        return Task((Stream(arn, fan_out=fan_out),), tuple(ranges))

    def whole(self, *shards: str) -> Task:
        """Return a task that reads all records of shards."""
        return self.task(*((s, BEGINNING, self.after(s, -1)) for s in shards))

    def expire(self) -> None:
        """Let the retention and one more hour pass."""
        self.loop.seconds += 25 * 3600
        self.kinesis.apply_retention()

    def batches(
        self, task: Task, *names: str, **options: Any
    ) -> Generator[pa.RecordBatch]:
        given = ReadOptions(streams=task.streams, **options)
        columns = Columns(schema(*(names or ("shard_id", "sequence_number", "data"))))
        clock, chance = self.executor_clock, random.Random(1)
        world = ReadContext(clock, chance, self.iterators, self.paces, given, columns)

        async def open_source(stream: Stream) -> MemorySource:
            return self.source if stream.fan_out is None else self.pushed

        return TaskReader(self.loop, world, task, open_source).batches()

    def rows(self, task: Task, *names: str, **options: Any) -> list[dict[str, Any]]:
        batches = self.batches(task, *names, **options)
        return [row for batch in batches for row in batch.to_pylist()]

    def read_numbers(self, task: Task, **options: Any) -> dict[str, list[str]]:
        found = defaultdict[str, list[str]](list)
        for row in self.rows(task, **options):
            found[row["shard_id"]].append(row["sequence_number"])
        return found
