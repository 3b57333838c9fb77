"""The client leaves in good order, however its block ends."""

from __future__ import annotations

import asyncio

import pytest
from anyio import move_on_after

from kinesumer.errors import CommitTimeoutError
from tests.support.world import World, in_virtual_time
from tests.unit.test_client import OLDEST, InMemory, consume, place, shard


@in_virtual_time
async def test_leaving_the_block_gives_everything_up_in_order(world: World) -> None:
    world.put("a", "b", "c")
    async with InMemory(world) as client:
        assert await consume(client, 3) == ["a", "b", "c"]
    assert shard(world).position == place(world, 1)
    assert shard(world).owner == ""
    assert world.members()["c1"].dead
    released, left = client.store.sent[-2:]
    assert "sequence_number" in released.set
    assert left.set["dead"] is True
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_an_exception_in_the_body_leaves_the_record_in_hand_unmarked(
    world: World,
) -> None:
    world.put("a", "b", "c")
    with pytest.raises(ZeroDivisionError):
        async with InMemory(world) as client:
            async for record in client.consume("orders", start=OLDEST):
                if record.data == b"b":
                    raise ZeroDivisionError
    assert shard(world).position == place(world, 0)
    assert shard(world).owner == ""
    async with InMemory(world, "c2") as client:
        assert await consume(client, 2) == ["b", "c"]


@in_virtual_time
async def test_cancelling_leaves_in_order_too(world: World) -> None:
    world.put("a", "b")

    async def work() -> None:
        async with InMemory(world) as client:
            async for record in client.consume("orders", start=OLDEST):
                if record.data == b"b":
                    await asyncio.sleep(3600)

    task = world.loop.create_task(work())
    await asyncio.sleep(10)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert shard(world).position == place(world, 0)
    assert world.members()["c1"].dead
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_what_anyio_cancels_leaves_in_order_too(world: World) -> None:
    world.put("a", "b", "c")
    client = InMemory(world)
    seen: list[str] = []
    with move_on_after(30) as scope:
        async with client:
            async for record in client.consume("orders", start=OLDEST):
                seen.append(record.data.decode())
                if record.data == b"b":
                    await asyncio.sleep(60)
    assert scope.cancelled_caught
    assert seen == ["a", "b"]
    assert shard(world).position == place(world, 0)
    assert not shard(world).owner
    assert world.members()["c1"].dead


@in_virtual_time
async def test_leaving_from_beside_the_loop_waits_for_the_handler(
    world: World,
) -> None:
    world.put("a", "b")
    client = InMemory(world)
    await client.__aenter__()

    async def work() -> None:
        async for _ in client.consume("orders", start=OLDEST):
            await asyncio.sleep(20)

    task = world.loop.create_task(work())
    await asyncio.sleep(5)
    began = world.clock.now()
    await client.__aexit__(None, None, None)
    assert 10 < world.clock.now() - began < 20
    assert shard(world).position == place(world, 0)
    await task


@in_virtual_time
async def test_leaving_while_the_store_is_down_says_so_in_time(world: World) -> None:
    world.put("a", "b")
    began = 0.0
    with pytest.raises(CommitTimeoutError, match="positions may not be stored"):
        async with InMemory(world) as client:
            await consume(client, 2)
            client.store.down = True
            began = world.clock.now()
    assert world.clock.now() - began <= 8.1
    assert len(asyncio.all_tasks()) == 1


@in_virtual_time
async def test_the_bodys_own_error_goes_before_a_store_that_is_down(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a", "b")
    with pytest.raises(ZeroDivisionError):
        async with InMemory(world) as client:
            await consume(client, 2)
            client.store.down = True
            raise ZeroDivisionError
    assert "positions may not be stored" in caplog.text


@in_virtual_time
async def test_a_client_that_consumed_nothing_has_nothing_to_leave(
    world: World,
) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
    assert world.table.snapshot() == []
