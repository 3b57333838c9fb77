"""Simulate a query in memory and in virtual time, with its driver and tasks."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from kinesumer.core.batch_ranges import Limits
from kinesumer.errors import DataLossError, SourceUnavailableError
from kinesumer.model.positions import (
    After,
    At,
    End,
    Offset,
    ShardPosition,
    number_order,
)
from kinesumer.model.records import Page
from kinesumer.model.streams import Stream, StreamInfo
from kinesumer.ports import Reservation
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.planning.driver import Driver
from kinesumer.spark.planning.tasks import Task
from kinesumer.testing.kinesis.shards import Shard as MemoryShard
from kinesumer.testing.memory import MemoryKinesis, MemorySource
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire.query_offsets import from_json, to_json
from tests.support.clock import ClockAhead
from tests.support.faulty import FaultySource
from tests.support.world import in_virtual_time

T = TypeVar("T")
Row = tuple[str, str]  # a shard's id and a sequence number


Test = Callable[..., Coroutine[Any, Any, None]]


def simulated(shards: int = 0) -> Callable[[Test], Callable[..., None]]:
    """Run a test in virtual time. Its first argument is a World.

    With shards, Kinesis has a stream "orders" with this number of shards.
    """

    return lambda test: in_virtual_time(test, lambda loop: World(loop, shards))


class World:
    """One Kinesis in virtual time.

    The driver has its own clock, which tests may set ahead of Kinesis's.
    """

    def __init__(self, loop: VirtualLoop, shards: int) -> None:
        self.clock = loop.services
        self.kinesis = MemoryKinesis(self.clock)
        if shards:
            self.kinesis.create_stream("orders", shards)
        self.driver_clock = ClockAhead(self.clock)
        self._sources: dict[str, AwsSource] = {}

    async def open(self, stream: Stream) -> Any:
        """Return a stream's source. Drivers get this method as a function."""
        return self.source(stream.name)

    def source(self, name: str = "orders") -> AwsSource:
        """Return the source through which queries read a stream."""
        if name not in self._sources:
            self._sources[name] = AwsSource(self.kinesis.source(name))
        return self._sources[name]

    @property
    def refused_reads(self) -> float:
        """A number that changes with each read that was refused or had expired."""
        expired = sum(source.expired for source in self._sources.values())
        return self.kinesis.throttled - expired

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and delete the records that have expired."""
        await asyncio.sleep(seconds)
        self.kinesis.apply_retention()

    def put(self, count: int = 1, name: str = "orders", key: str = "") -> list[Row]:
        """Put records with different keys, or with one key."""
        return [
            self.kinesis.put(name, b"x" * 10, key or f"key-{i}") for i in range(count)
        ]

    async def stream_in(self, count: int, seconds: float, key: str = "") -> list[Row]:
        """Put records at equal intervals over a period."""
        rows = []
        for i in range(count):
            rows += self.put(key=key or f"key-{i}")
            await asyncio.sleep(seconds / count)
        return rows

    def query(self, **options: Any) -> Query:
        """Return a query on "orders" that hasn't run yet."""
        given = {"streams": (Stream("orders"),), **options}
        return Query(self, ReadOptions(**given))


class AwsSource(FaultySource):
    """A source whose answers have a Date in whole seconds, as AWS's have.

    It refuses to read some shards.
    """

    def __init__(self, source: MemorySource) -> None:
        super().__init__(source)
        self.date_ahead_seconds = 0.0
        self.refused: set[str] = set()
        self.lacks_credentials = False

    async def call(self, act: Callable[[], T]) -> T:
        if self.lacks_credentials:
            error = SourceUnavailableError("AWS has refused the credentials")
            error.lacks_credentials = True
            raise error
        return await super().call(act)

    async def describe(self) -> StreamInfo:
        info = await super().describe()
        return info._replace(now=(info.now + self.date_ahead_seconds) // 1)

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        shard_id = iterator.partition(" ")[0]
        if shard_id in self.refused:
            raise SourceUnavailableError(f"{shard_id} does not answer")
        return await super().get_records(iterator, limit, room)


class Query:
    """A query: the ends of its batches, which Spark logs, and the batches' rows."""

    driver: Driver

    def __init__(self, world: World, options: ReadOptions) -> None:
        self.world, self.options = world, options
        self.ends: list[str] = []
        self.batches: list[list[Row]] = []
        self.restart()

    def restart(self) -> None:
        """Replace the driver by a new one, which has only Spark's log."""
        world = self.world
        self.driver = Driver(self.options, world.open, world.driver_clock)

    async def plan(self) -> bool:
        """Plan the next batch, and log its end if there is one."""
        options = self.options
        limits = Limits(options.max_rows_per_batch, options.max_bytes_per_batch)
        end = await self.driver.latest(self._offset(len(self.ends)), limits)
        if end is None:
            return False
        self.ends.append(json.dumps(to_json(end)))
        return True

    def _offset(self, batches: int) -> Offset:
        """Return the end of this number of logged batches."""
        return from_json(json.loads(self.ends[batches - 1])) if batches else {}

    async def tasks(self, number: int) -> list[Task]:
        """Return the tasks of a logged batch."""
        start, end = self._offset(number), self._offset(number + 1)
        return await self.driver.partitions(start, end)

    async def run_batch(self) -> list[Row]:
        """Compute the last logged batch. Computing it again must give the same rows."""
        number = len(self.ends) - 1
        rows = self.read(await self.tasks(number))
        if number < len(self.batches):
            assert rows == self.batches[number]
        else:
            self.batches.append(rows)
        return rows

    async def trigger(self) -> list[Row] | None:
        """Plan and compute a batch. Return None if no record is new."""
        return await self.run_batch() if await self.plan() else None

    async def drain(self, most: int = 100) -> None:
        """Trigger batches until no record is new."""
        for _ in range(most):
            refused = self.world.refused_reads
            idle = await self.trigger() is None
            if idle and self.world.refused_reads == refused:
                return
            await asyncio.sleep(1 if idle else 0)
        raise AssertionError(f"{most} batches, and still something new")

    async def available_now(self, most: int = 100) -> None:
        """Run the query with Trigger.AvailableNow."""
        self.restart()
        await self.driver.fix_targets()
        await self.drain(most)

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch]

    def read(self, tasks: list[Task]) -> list[Row]:
        """Return the rows of tasks, taken directly from the shards' logs."""
        rows = []
        for task in tasks:
            for part in task.ranges:
                name = part.stream_arn.rpartition("/")[2]
                shard = self.world.kinesis.stream(name).shard(part.shard_id)
                begin, end = self._begin(shard, part.first), _end(shard, part.last)
                assert begin <= end
                rows += [
                    (part.shard_id, stored.sequence_number)
                    for stored in shard.log[begin:end]
                ]
        return rows

    def _begin(self, shard: MemoryShard, place: ShardPosition) -> int:
        if isinstance(place, After):
            return max(shard.trimmed, shard.place_after(place.position.sequence_number))
        assert not isinstance(place, End)
        if isinstance(place, At):
            begin = shard.place_at(place.sequence_number)
            if begin < shard.trimmed and not self.options.fail_on_data_loss:
                return shard.trimmed
            if begin < shard.trimmed:
                raise DataLossError(f"{place.sequence_number} is gone")
            assert shard.log[begin].sequence_number == place.sequence_number
            return begin
        if place.timestamp is None:
            return shard.trimmed
        return max(shard.trimmed, shard.place_since(place.timestamp))


def _end(shard: MemoryShard, place: ShardPosition) -> int:
    if isinstance(place, End):
        assert shard.closed, "only a closed shard has an end"
        return len(shard.log)
    assert isinstance(place, After)
    number = place.position.sequence_number
    end = shard.place_after(number)
    assert shard.log[end - 1].sequence_number == number, "no such record in the shard"
    return end


def late_seconds(world: World, query: Query) -> list[float]:
    """Return, for each row, its delay behind the newest row of earlier batches."""
    arrived = arrivals(world)
    newest, late = 0.0, [0.0]
    for batch in query.batches:
        late += [max(0.0, newest - arrived[row]) for row in batch]
        newest = max([newest, *(arrived[row] for row in batch)])
    return late


# --- random queries ------------------------------------------------------------------


def reshard(kinesis: MemoryKinesis, kind: str, place: int) -> None:
    """Split an open shard, or merge two neighbours."""
    shards = [shard.shard.shard_id for shard in kinesis.stream("orders").open]
    if kind == "split":
        kinesis.split("orders", shards[place % len(shards)])
    elif len(shards) > 1:
        low = place % (len(shards) - 1)
        kinesis.merge("orders", *shards[low : low + 2])


def arrivals(world: World) -> dict[Row, float]:
    """Return the arrival time of each record that was ever put into "orders"."""
    return {
        (shard.shard.shard_id, stored.sequence_number): stored.arrived_at
        for shard in world.kinesis.stream("orders").shards.values()
        for stored in shard.log
    }


def assert_each_once(world: World, query: Query, rows: Iterable[Row]) -> None:
    """Check that rows are read once and in order, and children after their parents."""
    assert sorted(query.rows) == sorted(rows)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    numbers = defaultdict[str, list[str]](list)
    for batch, rows in enumerate(query.batches):
        for shard_id, number in rows:
            first.setdefault(shard_id, batch)
            last[shard_id] = batch
            numbers[shard_id].append(number)
    for of_shard in numbers.values():
        assert of_shard == sorted(of_shard, key=number_order)
    for shard_id, shard in world.kinesis.stream("orders").shards.items():
        for parent in shard.shard.parents:
            if parent in last and shard_id in first:
                assert last[parent] < first[shard_id]
