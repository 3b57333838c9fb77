"""Test that queries share the reads of one stream fairly.

How apps do so is tested in tests/unit/core/test_pacing_neighbours.py.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.model.streams import Stream
from kinesumer.spark.planning.tasks import ShardRange
from kinesumer.spark.process_cache import IteratorCache, new_paces
from kinesumer.spark.range_fetcher import RangeFetcher, ReadContext
from kinesumer.spark.rows import Columns
from tests.support.spark_query import World, simulated
from tests.support.spark_reading import schema

TRIGGER_SECONDS = 1.0
SETTLED, OVER = 40.0, 160.0


class Reader:
    """A query whose tasks send requests to Kinesis, on one worker."""

    def __init__(
        self, world: World, number: int, trigger_seconds: float = TRIGGER_SECONDS
    ) -> None:
        self.world, self.trigger_seconds = world, trigger_seconds
        self.query, self.waits = world.query(), list[float]()
        self.context = ReadContext(
            world.clock,
            Random(number),
            IteratorCache(),
            new_paces(world.clock),
            self.query.options,
            Columns(schema("data")),
        )

    async def run(self) -> None:
        """Trigger batches until the time is over."""
        clock = self.world.clock
        due = clock.now() + self.context.random.random()
        while clock.now() < OVER:
            await asyncio.sleep(max(0.0, due - clock.now()))
            due = clock.now() + self.trigger_seconds
            if await self.query.plan():
                await self.query.run_batch()
                await asyncio.gather(*map(self._fetch, await self.ranges()))

    async def ranges(self) -> list[ShardRange]:
        """Return the ranges of the last batch."""
        tasks = await self.query.tasks(len(self.query.ends) - 1)
        return [range_ for task in tasks for range_ in task.ranges]

    async def _fetch(self, range_: ShardRange) -> None:
        stream, open_source = Stream("orders"), self.world.open
        fetcher = RangeFetcher(self.context, range_, stream, open_source)
        while not fetcher.over:
            await fetcher.wait()
            batch = await fetcher.turn()
            rows = [] if batch is None else batch.to_pylist()
            now = self.world.clock.now()
            if now > SETTLED:
                self.waits += [now - float(row["data"]) for row in rows]


def p99(waits: list[float]) -> float:
    assert len(waits) > 500
    return sorted(waits)[int(0.99 * len(waits))]


def refused(world: World) -> float:
    """Return the part of the reads that were refused."""
    return world.kinesis.throttled / len(world.source().reads)


async def put(world: World) -> None:
    """Put records at random moments. Each record contains its time."""
    random = Random(3)
    while world.clock.now() < OVER:
        world.kinesis.put("orders", repr(world.clock.now()).encode(), "key")
        await asyncio.sleep(random.expovariate(8.0))


@pytest.mark.parametrize(("count", "most"), [(2, 0.3), (3, 2.5)])
@simulated(1)
async def test_queries_on_one_stream_slow_down_alike_if_at_all(
    world: World, count: int, most: float
) -> None:
    queries = [Reader(world, number) for number in range(count)]
    await asyncio.gather(put(world), *(query.run() for query in queries))
    p99s = [p99(query.waits) for query in queries]
    assert max(p99s) <= TRIGGER_SECONDS + most
    assert max(p99s) <= 1.5 * min(p99s)
    if count == 2:
        assert refused(world) < 0.02


@simulated(1)
async def test_the_plan_and_the_tasks_know_how_many_apps_read(world: World) -> None:
    query = Reader(world, 0, trigger_seconds=0.25)
    query.query.driver.apps = lambda _arn: 4
    await asyncio.gather(put(world), query.run())
    assert p99(query.waits) <= 1.0
    assert len(world.source().reads) <= 2.6 * OVER
    assert [range_.apps for range_ in await query.ranges()] == [4]
