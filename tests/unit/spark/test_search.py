"""Test that AvailableNow finds the last record of each shard with few calls."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.model.positions import BEGINNING, After, Position
from kinesumer.model.streams import Stream
from kinesumer.runtime.clock import ServiceTime
from kinesumer.spark.planning.data_loss import DataLoss
from kinesumer.spark.planning.search import last_positions
from kinesumer.spark.planning.stream_state import StreamState
from tests.support.spark_query import AwsSource, World, simulated

HOUR = 3_600.0

# Groups of records: their number, the seconds in which they arrive, and the quiet
# seconds after them.
CASES: dict[str, list[tuple[int, float, float]]] = {
    "busy": [(6_000, 60, 0)],
    "one a second": [(7_200, 2 * HOUR, 0.4)],
    "one a minute": [(600, 10 * HOUR, 30)],
    "quiet for minutes": [(7_200, 2 * HOUR, 200)],
    "quiet for half an hour": [(7_200, 2 * HOUR, HOUR / 2)],
    "quiet for hours": [(7_200, 2 * HOUR, 3 * HOUR)],
    "quiet for most of a day": [(3_600, HOUR, 20 * HOUR)],
    "bursts": [*[(1_000, 0, 600)] * 5, (1_000, 0, 645)],
    "one burst an hour ago": [(20_000, 40, HOUR)],
    "one record": [(1, 1, HOUR)],
    "empty": [(0, 0, 2 * HOUR)],
}


async def search(world: World, arrivals: list[tuple[int, float, float]]) -> AwsSource:
    """Fill a shard, find its last record, and return the source, which counts calls."""
    world.kinesis.create_stream("orders")
    for count, seconds, quiet in arrivals:
        await world.stream_in(count, seconds, key="one")
        await asyncio.sleep(quiet)
    service, source = ServiceTime(world.clock), world.source()
    loss = DataLoss(fail=True)
    stream = StreamState(Stream("orders"), source, world.clock, service, loss)
    await stream.refresh()
    [shard] = world.kinesis.stream("orders").open
    last = shard.log[-1] if shard.log else None
    [position] = (await last_positions(stream)).values()
    if last is None:
        assert position == BEGINNING
    else:
        assert position == After(Position(last.sequence_number), last.arrived_at)
    return source


def test_the_last_record_is_found_by_few_calls() -> None:
    """Four iterators with a page each are usually enough."""
    sources: dict[str, AwsSource] = {}

    @simulated()
    async def find(world: World, name: str) -> None:
        sources[name] = await search(world, CASES[name])

    for name in CASES:
        find(name)
        source = sources[name]
        limit = 10 if name == "one burst an hour ago" else 4
        assert len(source.iterators) <= limit, name
        assert len(source.reads) <= limit + 2, name
        paced = zip(source.reads, source.reads[4:], strict=False)
        assert all(later - earlier >= 0.999 for earlier, later in paced), name
    assert sum(len(source.iterators) for source in sources.values()) <= 4 * len(CASES)
    assert sum(len(source.reads) for source in sources.values()) <= 4 * len(CASES)


@pytest.mark.parametrize("seed", range(8))
@simulated()
async def test_any_history_is_searched_to_its_end(world: World, seed: int) -> None:
    chance = Random(seed)
    spans = [chance.choice([0.01, 1, 60, 900, 7_200]) for _ in range(8)]
    counts = [chance.choice([0, 1, 30, 700]) for _ in range(8)]
    await search(world, list(zip(counts, spans, spans, strict=True)))


def test_a_shorter_fetch_period_shortens_the_search_too() -> None:
    waits: dict[float, float] = {}

    @simulated(shards=1)
    async def find(world: World, period: float) -> None:
        for count, seconds, quiet in CASES["one burst an hour ago"]:
            await world.stream_in(count, seconds, key="one")
            await asyncio.sleep(quiet)
        world.kinesis.reads_per_second = 0  # no limit
        query = world.query(starting=BEGINNING, min_fetch_period=period)
        began = world.clock.now()
        await query.driver.fix_targets()
        waits[period] = world.clock.now() - began

    for period in (0.001, 0.25, 10.0):
        find(period)
    assert waits[0.001] < 0.1
    assert waits[10.0] == waits[0.25] > 1.0
