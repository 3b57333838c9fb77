"""Test that a plan reads a shard within Kinesis's limits."""

from __future__ import annotations

import asyncio

from kinesumer.model.streams import Start
from tests.support.spark_query import World, simulated


@simulated(1)
async def test_a_shard_is_read_four_times_a_second_at_most(world: World) -> None:
    await world.stream_in(3_000, seconds=600)
    await asyncio.sleep(7_200)
    query = world.query(starting=Start.TRIM_HORIZON)
    world.kinesis.reads_per_second = 4
    await query.drain()
    await world.stream_in(300, seconds=3)
    await query.drain()
    assert world.kinesis.throttled == 0
    assert len(query.rows) == 3_300
