"""Test that queries and apps share the reads of one stream fairly."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.core.pacing import Pacing
from kinesumer.errors import ShardThrottledError
from kinesumer.model.streams import Start, Stream
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


async def app(world: World, waits: list[float], apps: int) -> None:
    """Follow the only shard as a client does."""
    clock, random, source = world.clock, Random(7), world.source()
    [shard] = await source.list_shards()
    iterator: str | None = await source.get_iterator(shard.shard_id, Start.LATEST)
    pacing = Pacing(clock.now())
    pacing.share_among(apps)
    while clock.now() < OVER:
        assert iterator is not None
        started = clock.now()
        try:
            page = await source.get_records(iterator, 10_000)
        except ShardThrottledError:
            following = pacing.after_throttle(clock.now(), random.random())
        else:
            iterator = page.next_iterator
            if clock.now() > SETTLED:
                waits += [clock.now() - float(r.data) for r in page.records]
            following = pacing.after_page(
                started,
                records=len(page.records),
                payload_bytes=0,
                millis_behind=page.millis_behind,
            )
        await asyncio.sleep(max(0.0, following - clock.now()))


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


# If they don't know each other, refusals show them that another one reads.
@pytest.mark.parametrize(
    ("apps", "query_most", "app_most", "refused_most"),
    [(1, 0.3, 1.0, 0.06), (2, 0.5, 0.6, 0.005)],
)
@simulated(1)
async def test_a_query_and_an_app_leave_each_other_enough(
    world: World, apps: int, query_most: float, app_most: float, refused_most: float
) -> None:
    query, waits = Reader(world, 0), list[float]()
    query.query.driver.apps = lambda _arn: apps
    await asyncio.gather(put(world), query.run(), app(world, waits, apps))
    assert p99(query.waits) <= TRIGGER_SECONDS + query_most
    assert p99(waits) <= app_most
    assert refused(world) < refused_most


@simulated(1)
async def test_the_plan_and_the_tasks_know_how_many_apps_read(world: World) -> None:
    query = Reader(world, 0, trigger_seconds=0.25)
    query.query.driver.apps = lambda _arn: 4
    await asyncio.gather(put(world), query.run())
    assert p99(query.waits) <= 1.0
    assert len(world.source().reads) <= 2.6 * OVER
    assert [range_.apps for range_ in await query.ranges()] == [4]
