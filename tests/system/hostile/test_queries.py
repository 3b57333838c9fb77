"""Broken rows where a Spark query has the group for itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.clients import numbers, spread
from tests.support.world import World, in_virtual_time
from tests.system.hostile.hands import shard_keys, spoil
from tests.system.spark.a_query import Query

if TYPE_CHECKING:
    import pytest


@in_virtual_time
async def test_a_shards_row_that_cannot_be_read_keeps_no_other_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.create_stream("orders", 2)
    query = await Query(world).start()
    await query.batch()
    await world.until(lambda: len(world.shard_rows()) == 2)
    low, high = (f"shardId-{n:012}" for n in range(2))
    key = shard_keys(world)[low]
    await spoil(world, key, epoch="?")
    spread(world, *numbers(0, 8))
    await query.batch()
    world.kinesis.split("orders", high)
    await query.batch()
    await asyncio.sleep(60)
    await spoil(world, key, epoch=1)
    assert "attribute epoch '?' can't be read" in caplog.text
    assert world.shard_rows()[high].ended
    await query.batch()
    await world.until(lambda: world.shard_rows()[low].position is not None)
