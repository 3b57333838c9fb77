"""Bursts whose records arrived all at once: times do not tell how much they hold."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.model.streams import HASH_KEYS, Start
from tests.support.spark_query import Query, World, in_a_world

SHARDS = 8


async def burst(world: World, count: int, size: int) -> None:
    """Put so many records into each shard, all in one moment, some seconds ago."""
    for shard in range(SHARDS):
        key = shard * HASH_KEYS // SHARDS
        for _ in range(count):
            world.kinesis.put("orders", b"x" * size, explicit_hash_key=key)
    await asyncio.sleep(5)


async def planned(query: Query, *, bounded: bool) -> list[int]:
    """Return what each task of the next batch is taken to hold."""
    if bounded:
        await query.driver.fix_targets()
    assert await query.plan()
    tasks = await query.tasks(len(query.ends) - 1)
    return [sum(part.estimated_bytes for part in task.ranges) for task in tasks]


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    ("count", "size", "tasks"), [(1, 1_000, 1), (20, 1_000, 1), (200, 10_000, 4)]
)
def test_a_burst_is_shared_out_by_its_size(
    count: int, size: int, tasks: int, bounded: bool
) -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", SHARDS)
        query = world.query(starting=Start.TRIM_HORIZON, max_partitions=64)
        await query.plan()
        await burst(world, count, size)
        found = await planned(query, bounded=bounded)
        assert len(found) == tasks
        rows = query.read(await query.tasks(len(query.ends) - 1))
        assert len(rows) == SHARDS * count
        assert sum(found) == SHARDS * count * size

    in_a_world(story)


def test_a_burst_that_nothing_is_remembered_of_is_no_empty_task() -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", SHARDS)
        query = world.query(starting=Start.TRIM_HORIZON, max_partitions=64)
        await query.plan()
        await burst(world, 200, 10_000)
        await query.plan()
        query.restart()
        assert len(await query.tasks(len(query.ends) - 1)) == 2

    in_a_world(story)


def test_a_limited_batch_of_a_burst_is_taken_to_hold_what_it_holds() -> None:
    async def story(world: World) -> None:
        world.kinesis.create_stream("orders", SHARDS)
        query = world.query(
            starting=Start.TRIM_HORIZON, max_partitions=64, max_rows_per_batch=12
        )
        await query.plan()
        await burst(world, 200, 10_000)
        for _ in range(3):
            [size] = await planned(query, bounded=False)
            rows = query.read(await query.tasks(len(query.ends) - 1))
            assert size == 10_000 * len(rows)

    in_a_world(story)
