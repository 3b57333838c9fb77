"""Test the client's arguments, start, manual commits and end."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer import Kinesumer
from kinesumer.errors import ConfigurationError, KinesumerError, ShardsLostError
from tests.support.clients import OLDEST, place, shard
from tests.support.row_edits import shard_keys, spoil
from tests.support.world import ARN, SHARD, InMemory, World

# --- what is refused ---


async def test_consuming_outside_the_block_or_twice_is_refused(world: World) -> None:
    with pytest.raises(ConfigurationError, match="async with"):
        Kinesumer("app", table="table").consume("orders")
    async with InMemory(world) as client:
        client.consume("orders")
        with pytest.raises(ConfigurationError, match=r"refresh\(\)"):
            client.consume("payments")


async def test_ack_needs_manual_commits(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        async for record in client.consume("orders", start=OLDEST):
            with pytest.raises(ConfigurationError, match='commit="manual"'):
                client.ack(record)
            break


async def test_commit_and_refresh_need_a_running_client(world: World) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
        await client.leave()
        for call in (client.commit(), client.refresh("orders")):
            with pytest.raises(KinesumerError, match="iterate over consume"):
                await call


# --- manual commits ---


async def test_acks_in_any_order_commit_the_contiguous_prefix(world: World) -> None:
    world.put("a", "b", "c")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST)
        a, b, c = [await anext(records) for _ in range(3)]
        client.ack(c)
        await client.commit()
        assert shard(world).position is None
        client.ack(a)
        await client.commit()
        assert shard(world).position == place(world, 0)
        client.ack(b)
        await client.commit()
        assert shard(world).position == place(world, 2)


async def test_a_commit_names_shards_that_other_clients_own(world: World) -> None:
    world.put("a", "b")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST)
        a, b = await anext(records), await anext(records)
        await spoil(world, shard_keys(world)[SHARD], owner="thief", epoch=9)
        client.ack(a)
        with pytest.raises(ShardsLostError, match=f"orders/{SHARD}") as caught:
            await client.commit()
        assert caught.value.shards == [(ARN, SHARD)]
        await client.commit()
        client.ack(b)
        with pytest.raises(ShardsLostError):
            await client.commit()
    assert shard(world).position is None


# --- limits ---


async def test_a_limit_ends_the_loop_with_all_its_records_done(world: World) -> None:
    world.put(*"abcdefgh")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST, limit=3)
        assert [record.data async for record in records] == [b"a", b"b", b"c"]
        assert [record.data async for record in records] == []
    assert shard(world).position == place(world, 2)
    async with InMemory(world) as client:
        batches = client.consume("orders", limit=2).batches()
        assert [len(batch) async for batch in batches] == [2]
    assert shard(world).position == place(world, 4)


async def test_a_limit_counts_the_records_that_user_code_gets(world: World) -> None:
    world.put(*"1x2x3456")
    async with InMemory(world) as client:
        records = client.consume(
            "orders", start=OLDEST, decode=int, on_decode_error="skip", limit=3
        )
        assert [record.value async for record in records] == [1, 2, 3]
    assert shard(world).position == place(world, 4)


async def test_with_manual_commits_a_limit_counts_deliveries(world: World) -> None:
    world.put(*"abcd")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST, limit=3)
        async with records:
            seen = [record async for record in records]
            for record in seen[:2]:
                client.ack(record)
        assert [record.data for record in seen] == [b"a", b"b", b"c"]
        with pytest.raises(ConfigurationError, match=r"client\.ack\(\)"):
            await records.aclose(ack=True)
    assert shard(world).position == place(world, 1)


async def test_several_tasks_share_a_limit_and_all_of_them_end(world: World) -> None:
    world.put(*"abcdefgh")
    async with InMemory(world, commit="manual") as client:
        records = client.consume("orders", start=OLDEST, limit=5)

        async def task() -> list[bytes]:
            return [r.data async for batch in records.batches() for r in batch.records]

        found = await asyncio.gather(task(), task(), task())
        texts = sorted(data.decode() for one in found for data in one)
        assert texts == [*"abcde"]
