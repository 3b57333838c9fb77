"""A query in memory and in virtual time: what Spark asks a driver, what tasks read."""

from __future__ import annotations

import asyncio
import json
from functools import wraps
from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.errors import DataLossError
from kinesumer.model.streams import Stream
from kinesumer.simulation.event_loop import VirtualLoop
from kinesumer.simulation.memory_kinesis import MemorySource
from kinesumer.spark.offsets.model import After, At, End, ShardPosition
from kinesumer.spark.offsets.offset_json import from_json, to_json
from kinesumer.spark.options.parser import ReadOptions
from kinesumer.spark.planning.driver import Driver
from kinesumer.spark.planning.limits import Limits
from kinesumer.testing.memory import MemoryKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesumer.model.streams import StreamInfo
    from kinesumer.simulation.memory_kinesis import MemoryShard
    from kinesumer.spark.planning.tasks import Task

Row = tuple[str, str]
"""A shard's id and a sequence number."""


def simulated(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test, which takes a World, on a loop that waits for nothing."""

    @wraps(test)
    def run() -> None:
        in_a_world(test)

    del run.__wrapped__
    return run


def in_a_world(test: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine on a loop that waits for nothing."""
    loop = VirtualLoop(Random(0))
    loop.run(test(World(loop)))
    assert not loop.failures


class World:
    """One Kinesis with a stream "orders", and its time.

    The driver's clock is ``driver_ahead_seconds`` ahead of Kinesis's.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.clock = loop.services
        self.kinesis = MemoryKinesis(self.clock)
        self.driver_ahead_seconds = 0.0

    async def open(self, stream: Stream) -> Any:
        """Return a stream's source, as a Driver wants it."""
        return AwsSource(self.kinesis, stream.name)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and retention take what has expired meanwhile."""
        await asyncio.sleep(seconds)
        self.kinesis.apply_retention()

    def put(self, count: int = 1, name: str = "orders", key: str = "") -> list[Row]:
        """Put records with keys of their own, or with one."""
        return [
            self.kinesis.put(name, b"x" * 10, key or f"key-{i}") for i in range(count)
        ]

    async def stream_in(self, count: int, seconds: float, key: str = "") -> list[Row]:
        """Put records evenly over a time."""
        rows = []
        for i in range(count):
            rows += self.put(key=key or f"key-{i}")
            await asyncio.sleep(seconds / count)
        return rows

    def query(self, **options: Any) -> Query:
        """Return a query on "orders" that hasn't run yet."""
        given = {"streams": (Stream("orders"),), **options}
        return Query(self, ReadOptions(**given))


class AwsSource(MemorySource):
    """A source whose answers have a Date in whole seconds, as AWS's have."""

    async def describe(self) -> StreamInfo:
        """Return the stream as it is now."""
        info = self.describe_now()
        return info._replace(now=info.now // 1)


class DriverClock:
    """The clock of a driver's machine."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """Return the monotonic time."""
        return self._world.clock.now()

    def wall(self) -> float:
        """Return the time of day, as wrong as the machine's clock is."""
        return self._world.clock.wall() + self._world.driver_ahead_seconds


class Query:
    """What Spark keeps of a query: the ends of its batches; and what they read."""

    def __init__(self, world: World, options: ReadOptions) -> None:
        self.world, self.options = world, options
        self.ends: list[str] = []
        self.batches: list[list[Row]] = []
        self.driver = self._new_driver()

    def _new_driver(self) -> Driver:
        return Driver(self.options, self.world.open, DriverClock(self.world))

    def restart(self) -> None:
        """Lose everything but Spark's log."""
        self.driver = self._new_driver()

    async def plan(self, limits: Limits | None = None) -> bool:
        """Log the end of the next batch, if there is one."""
        start = self.ends[-1] if self.ends else "{}"
        limits = limits or Limits(
            self.options.max_rows_per_batch, self.options.max_bytes_per_batch
        )
        end = await self.driver.latest(from_json(json.loads(start)), limits)
        if end is None:
            return False
        self.ends.append(json.dumps(to_json(end)))
        return True

    async def tasks(self, number: int) -> list[Task]:
        """Return the tasks of a logged batch."""
        start = self.ends[number - 1] if number else "{}"
        return await self.driver.partitions(
            from_json(json.loads(start)), from_json(json.loads(self.ends[number]))
        )

    async def run_batch(self) -> list[Row]:
        """Compute the last logged batch; computed again it must be the same."""
        number = len(self.ends) - 1
        rows = self.read(await self.tasks(number))
        if number < len(self.batches):
            assert rows == self.batches[number]
        else:
            self.batches.append(rows)
        return rows

    async def trigger(self) -> list[Row] | None:
        """Plan and compute a batch; None if there is nothing new."""
        return await self.run_batch() if await self.plan() else None

    async def drain(self, most: int = 100) -> None:
        """Trigger until nothing is new."""
        for _ in range(most):
            throttled = self.world.kinesis.throttled
            idle = await self.trigger() is None
            if idle and self.world.kinesis.throttled == throttled:
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
        """Everything read so far."""
        return [row for batch in self.batches for row in batch]

    def read(self, tasks: list[Task]) -> list[Row]:
        """Return what tasks read, straight from the shards' logs."""
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
