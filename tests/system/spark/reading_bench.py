"""A stream in memory, and tasks that read ranges of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kinesumer.model.positions import Position
from kinesumer.model.streams import Stream
from kinesumer.spark.columnar.arrow import Columns
from kinesumer.spark.offsets.model import After
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.options.table import COLUMNS
from kinesumer.spark.planning.tasks import ShardRange, Task
from kinesumer.spark.reading.range_fetcher import ReadContext
from kinesumer.spark.reading.task_reader import TaskReader
from kinesumer.spark.runtime.shard_cache import IteratorCache, PaceCache
from kinesumer.testing.memory import MemoryKinesis, MemorySource
from tests.unit.spark.jumping import EPOCH, JumpingClock, JumpingLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    import pyarrow as pa

    from kinesumer.model.records import Page
    from kinesumer.model.streams import Start
    from kinesumer.ports import Reservation
    from kinesumer.spark.offsets.model import ShardPosition

TYPES = {
    "string": StringType(),
    "bigint": LongType(),
    "binary": BinaryType(),
    "timestamp": TimestampType(),
}
DAY = 86400.0


def schema(*names: str) -> StructType:
    """Return a schema of these columns."""
    return StructType([StructField(name, TYPES[COLUMNS[name]]) for name in names])


class StreamState(MemorySource):
    """Notes each call with its time; ``mishap`` may raise in its place."""

    def __init__(self, kinesis: MemoryKinesis, name: str) -> None:
        super().__init__(kinesis, name)
        self.calls: list[tuple[str, float]] = []
        self.mishap: Callable[[str, int], None] = lambda call, count: None

    def _note(self, call: str) -> None:
        self.calls.append((call, self.kinesis.clock.now()))
        self.mishap(call, self.count(call))

    def count(self, call: str) -> int:
        """Return how often a call was made."""
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
    """One stream of two shards, in time that jumps."""

    def __init__(self, shards: int = 2, reads_per_second: int = 5) -> None:
        self.loop = JumpingLoop()
        self.clock = self.executor_clock = JumpingClock(self.loop)
        self.kinesis = MemoryKinesis(self.clock, reads_per_second=reads_per_second)
        self.stream = self.kinesis.create_stream("orders", shards)
        self.source = StreamState(self.kinesis, "orders")
        self.iterators = IteratorCache()
        self.paces = PaceCache()
        self.numbers: dict[str, list[str]] = {}

    def put(self, count: int, data: Callable[[int], bytes] = b"%d".__mod__) -> None:
        """Put records with keys of their own."""
        for place in range(count):
            shard, number = self.kinesis.put("orders", data(place), f"key-{place}")
            self.numbers.setdefault(shard, []).append(number)

    def after(self, shard: str, place: int, sub: int | None = None) -> After:
        """Return the place just after a shard's record."""
        return After(Position(self.numbers[shard][place], sub), EPOCH)

    def task(
        self, *pairs: tuple[str, ShardPosition, ShardPosition], hours: float = 24
    ) -> Task:
        """Return a task of ranges: shard, first, last."""
        arn = self.stream.arn
        ranges = [ShardRange(arn, *pair, hours * 3600) for pair in pairs]
        return Task((Stream(arn),), tuple(ranges))

    def batches(
        self, task: Task, *names: str, **options: Any
    ) -> Generator[pa.RecordBatch]:
        """Read a task."""
        given = ReadOptions(streams=task.streams, **options)
        columns = Columns(schema(*(names or ("shard_id", "sequence_number", "data"))))
        clock, chance = self.executor_clock, random.Random(1)
        world = ReadContext(clock, chance, self.iterators, self.paces, given, columns)

        async def open_source(stream: Stream) -> MemorySource:
            return self.source

        return TaskReader(self.loop, world, task, open_source).batches()

    def rows(self, task: Task, *names: str, **options: Any) -> list[dict[str, Any]]:
        """Read a task; return its rows."""
        batches = self.batches(task, *names, **options)
        return [row for batch in batches for row in batch.to_pylist()]

    def read_numbers(self, task: Task, **options: Any) -> dict[str, list[str]]:
        """Read a task; return each shard's sequence numbers."""
        found: dict[str, list[str]] = {}
        for row in self.rows(task, **options):
            found.setdefault(row["shard_id"], []).append(row["sequence_number"])
        return found
