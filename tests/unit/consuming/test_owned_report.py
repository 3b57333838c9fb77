"""Test what a client tells about its shards."""

from __future__ import annotations

import asyncio

from kinesumer import (
    ShardAssignment,
    ShardKey,
    ShardLag,
    ShardPositions,
)
from tests.support.clients import OLDEST, place, shard
from tests.support.world import ARN, SHARD, InMemory, World


async def test_a_client_tells_its_shards_positions_and_lag_without_requests(
    world: World,
) -> None:
    key = ShardKey(ARN, SHARD)
    client = InMemory(world, commit_interval_seconds=30.0)
    assert (client.assignment(), client.positions(), client.lag()) == ({}, {}, {})
    async with client:
        world.put("a", "b", "c")
        records = client.consume("orders", start=OLDEST)
        await anext(records)
        await asyncio.sleep(2)
        assert client.assignment() == {
            key: ShardAssignment(shard(world).epoch, "delivering")
        }
        assert client.positions() == {key: ShardPositions(None, None)}
        lag = client.lag()[key]
        assert (lag.records_in_hand, lag.records_uncommitted) == (1, 3)
        assert lag.read_seconds == lag.commit_seconds
        assert lag.read_seconds is not None
        assert 2 <= lag.read_seconds < 20

        await anext(records)
        assert client.positions()[key] == ShardPositions(None, place(world, 0))
        await client.commit()
        assert client.positions()[key] == ShardPositions(
            place(world, 0), place(world, 0)
        )

        await anext(records)
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(5)
        lag = client.lag()[key]
        assert (lag.read_seconds, lag.records_in_hand) == (0.0, 0)
        # The last two records are done, and their position is not stored yet.
        assert lag.records_uncommitted == 2
        assert lag.commit_seconds is not None
        assert 5 <= lag.commit_seconds < 30
        await client.commit()
        assert client.lag()[key] == ShardLag(0.0, 0.0, 0, 0)
        waiting.cancel()
    assert (client.assignment(), client.positions(), client.lag()) == ({}, {}, {})


async def test_the_lag_counts_records_that_wait_for_user_code(world: World) -> None:
    world.kinesis.create_stream("payments")
    async with InMemory(world) as client:
        records = client.consume(["orders", "payments"], start=OLDEST)
        for stream in ("orders", "payments"):
            world.kinesis.put(stream, b"a")
        first = await anext(records)
        await asyncio.sleep(10)
        lag = client.lag()
        assert len(lag) == 2
        assert [each.records_in_hand for each in lag.values()].count(1) == 1
        assert lag[first.fence.shard].records_in_hand == 1
        assert all(
            each.read_seconds and each.read_seconds >= 10 for each in lag.values()
        )
