"""Where AvailableNow ends: the last record of each shard, found by few calls."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.model.positions import Position
from kinesumer.model.streams import Stream
from kinesumer.spark.offsets.model import BEGINNING, After
from kinesumer.spark.planning.bounds import is_near, targets
from kinesumer.spark.planning.data_loss import DataLoss
from kinesumer.spark.planning.probe import ProbedRecord, ServiceClock
from kinesumer.spark.planning.stream_state import PlanContext, StreamState
from tests.support.spark_query import AwsSource, in_a_world

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.model.records import Page
    from tests.support.spark_query import World

    Fill = Callable[[World], Awaitable[object]]

HOUR = 3_600.0


class CountingSource(AwsSource):
    """Counts calls, and keeps the times of reads."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.iterators = 0
        self.reads: list[float] = []

    async def get_iterator(self, shard_id: str, after: Any) -> str:
        """Return an iterator."""
        self.iterators += 1
        return await super().get_iterator(shard_id, after)

    async def get_records(self, iterator: str, limit: int, room: Any = None) -> Page:
        """Return the next page."""
        self.reads.append(self.kinesis.clock.now())
        return await super().get_records(iterator, limit, room)


async def steadily(world: World, count: int, seconds: float, quiet: float) -> None:
    """Put records evenly over a time, then none."""
    for _ in range(count):
        world.put(key="one")
        await asyncio.sleep(seconds / count)
    await asyncio.sleep(quiet)


async def bursts(world: World, quiet: float) -> None:
    """Put a thousand records every ten minutes for an hour, then none."""
    for _ in range(6):
        world.put(1_000, key="one")
        await asyncio.sleep(600)
    await asyncio.sleep(quiet)


CASES: dict[str, Fill] = {
    "busy": lambda world: steadily(world, 6_000, 60, 0),
    "one a second": lambda world: steadily(world, 7_200, 2 * HOUR, 0.4),
    "one a minute": lambda world: steadily(world, 600, 10 * HOUR, 30),
    "quiet for minutes": lambda world: steadily(world, 7_200, 2 * HOUR, 200),
    "quiet for half an hour": lambda world: steadily(world, 7_200, 2 * HOUR, HOUR / 2),
    "quiet for hours": lambda world: steadily(world, 7_200, 2 * HOUR, 3 * HOUR),
    "quiet for most of a day": lambda world: steadily(world, 3_600, HOUR, 20 * HOUR),
    "bursts": lambda world: bursts(world, 45),
    "one burst an hour ago": lambda world: steadily(world, 20_000, 40, HOUR),
    "one record": lambda world: steadily(world, 1, 1, HOUR),
    "empty": lambda world: asyncio.sleep(2 * HOUR),
}


def search(fill: Fill) -> CountingSource:
    """Fill a shard, find its target, and return the source that counted the calls."""
    sources = []

    async def find(world: World) -> None:
        world.kinesis.create_stream("orders", 1)
        await fill(world)
        service = ServiceClock(world.clock)
        source = CountingSource(world.kinesis, "orders")
        stream = StreamState(Stream("orders"), source, world.clock, service)
        await stream.refresh()
        there = len(world.kinesis.stream("orders").shard(stream.shards[0].shard_id).log)
        context = PlanContext(
            world.clock, service, DataLoss(fail=True), must_succeed=True
        )
        [place] = (await targets(stream, context)).values()
        shard = world.kinesis.stream("orders").shard(stream.shards[0].shard_id)
        if there:
            assert isinstance(place, After)
            last = shard.log[there - 1]
            assert place == After(Position(last.sequence_number), last.arrived_at)
        else:
            assert place == BEGINNING
        sources.append(source)

    in_a_world(find)
    return sources[0]


@pytest.mark.parametrize("name", CASES)
def test_the_last_record_is_found_by_few_calls(name: str) -> None:
    found = search(CASES[name])
    most = 10 if name == "one burst an hour ago" else 4
    assert found.iterators <= most
    assert len(found.reads) <= most + 2
    paced = zip(found.reads, found.reads[4:], strict=False)
    assert all(later - earlier >= 0.999 for earlier, later in paced)


def test_the_last_record_is_found_by_four_pairs_of_calls_on_average() -> None:
    found = [search(fill) for fill in CASES.values()]
    assert sum(source.iterators for source in found) <= 4 * len(found)
    assert sum(len(source.reads) for source in found) <= 4 * len(found)


def test_any_history_is_searched_to_its_end() -> None:
    for seed in range(20):
        chance = Random(seed)
        spans = [chance.choice([0.01, 1, 60, 900, 7_200]) for _ in range(8)]
        counts = [chance.choice([0, 1, 30, 700]) for _ in range(8)]

        async def fill(
            world: World, counts: list[int] = counts, spans: list[float] = spans
        ) -> None:
            for count, seconds in zip(counts, spans, strict=True):
                await steadily(world, max(1, count) if count else 1, seconds, seconds)

        search(fill)


def test_a_tip_is_near_if_a_few_pages_reach_it() -> None:
    slow = [ProbedRecord(Position("1"), 0.0, 1), ProbedRecord(Position("2"), 10.0, 1)]
    burst = [ProbedRecord(Position("1"), 10.0, 1), ProbedRecord(Position("2"), 10.0, 1)]
    assert is_near(slow, 150.0, 10)
    assert not is_near(slow, 170.0, 10)
    assert not is_near(burst, 11.0, 10)
    assert is_near(burst, 10.001, 10)
