"""Test that a backlog is read evenly over all shards, so no row is late."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import Start, Stream
from tests.support.spark_query import (
    Query,
    Row,
    World,
    arrivals,
    assert_each_once,
    late_seconds,
    simulated,
)

HOUR = 3_600.0
SKEW_SECONDS = 60.0  # the option's default
PARENT = "shardId-000000000000"


def assert_together(
    world: World, query: Query, rows: list[Row], skew: float = SKEW_SECONDS
) -> None:
    """Check that rows are read once, in order, and no later than the option allows."""
    assert_each_once(world, query, rows)
    assert max(late_seconds(world, query)) <= skew


async def stream_in(world: World, seconds: float, per_second: float = 1) -> list[Row]:
    return await world.stream_in(int(seconds * per_second), seconds)


async def two_splits(world: World, hours: float, per_second: float = 1) -> list[Row]:
    """Put records, split a shard, put more, split one of its children, and put more."""
    third = hours * HOUR / 3
    rows = await stream_in(world, third, per_second)
    [child, _] = world.kinesis.split("orders", PARENT)
    rows += await stream_in(world, third, per_second)
    world.kinesis.split("orders", child)
    return rows + await stream_in(world, third, per_second)


@pytest.mark.parametrize(
    ("hours", "per_second", "skew"), [(6, 1, SKEW_SECONDS), (6 / HOUR, 100, 0.1)]
)
@pytest.mark.parametrize("start", [Start.LATEST, Start.TRIM_HORIZON])
@simulated(4)
async def test_a_backlog_with_two_splits_takes_a_batch_for_each_generation(
    world: World, start: Start, hours: float, per_second: float, skew: float
) -> None:
    query = world.query(starting=start)
    if start == Start.LATEST:
        await query.trigger()
    rows = await two_splits(world, hours, per_second)
    query.restart()
    if start == Start.TRIM_HORIZON:
        await query.driver.fix_targets()
    await query.drain()
    assert_together(world, query, rows, skew)
    assert len(list(filter(None, query.batches))) == 3


@simulated(2)
async def test_trigger_once_reads_shards_without_parents_whole(world: World) -> None:
    rows = await two_splits(world, 1)
    query = world.query(starting=Start.TRIM_HORIZON)
    end = await query.driver.all_there_is({})
    assert end is not None
    read = query.read(await query.driver.partitions({}, end))
    roots = (PARENT, "shardId-000000000001")
    assert sorted(read) == sorted(row for row in rows if row[0] in roots)


@simulated(4)
async def test_a_skew_longer_than_retention_has_no_effect(world: World) -> None:
    await two_splits(world, 1)
    arrived = arrivals(world)
    query = world.query(starting=Start.TRIM_HORIZON, max_skew_per_batch=25 * HOUR)
    first = await query.trigger()
    assert first is not None
    assert max(arrived[row] for row in first) > world.clock.wall() - 10
    await query.drain()
    assert max(late_seconds(world, query)) > HOUR / 3


@simulated(2)
async def test_streams_of_one_query_advance_together(world: World) -> None:
    world.kinesis.create_stream("payments").next_number += 10**6
    paid: dict[Row, float] = {}
    rows: list[Row] = []
    for minute in range(120):
        rows += world.put(10)
        for row in world.put(5, name="payments"):
            paid[row] = world.clock.wall()
        if minute == 60:
            world.kinesis.split("orders", "shardId-000000000001")
        await asyncio.sleep(60)
    query = world.query(
        streams=(Stream("orders"), Stream("payments")), starting=Start.TRIM_HORIZON
    )
    await query.drain()
    assert sorted(query.rows) == sorted([*rows, *paid])
    newest = max(paid[row] for row in query.batches[0] if row in paid)
    assert newest <= world.clock.wall() - HOUR + 60


@simulated(2)
async def test_available_now_fails_if_a_shard_does_not_answer(world: World) -> None:
    await stream_in(world, HOUR)
    query = world.query(starting=Start.TRIM_HORIZON)
    await query.driver.fix_targets()
    world.source().refused.add("shardId-000000000001")
    with pytest.raises(SourceUnavailableError):
        await query.drain()


@simulated(100)
async def test_a_backlog_costs_few_probes_of_a_shard(world: World) -> None:
    reads = world.source().reads
    query = world.query(starting=Start.TRIM_HORIZON)
    rows = await stream_in(world, 2 * HOUR, per_second=5)
    await query.drain()
    assert sorted(query.rows) == sorted(rows)
    assert len(reads) <= 6 * 100
    reads.clear()
    await stream_in(world, 1, per_second=50)
    await query.trigger()
    assert len(reads) == 100
