"""Test that a client that stops reading releases its shards before its block ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import HandlerFailedError
from kinesumer.handlers import RetryPolicy
from tests.support.one_shard import OLDEST
from tests.support.world import InMemory

if TYPE_CHECKING:
    from kinesumer import Record
    from tests.support.world import World


async def test_shards_go_to_others_after_a_handler_failed(world: World) -> None:
    async def fail(record: Record) -> None:
        if record.data == b"b":
            raise ValueError

    world.put("a", "b")
    async with InMemory(world) as client:
        with pytest.raises(HandlerFailedError):
            await client.run(
                "orders",
                fail,
                start=OLDEST,
                retries=RetryPolicy(max_attempts=1),
                on_failure="stop-client",
            )
        assert world.members()["c1"].dead
        other = world.client("c2")
        await world.until(lambda: other.texts == ["b"], seconds=10)
        await asyncio.wait_for(client.leave(), 1)


async def test_a_cancelled_run_gives_its_shards_up(world: World) -> None:
    async def take(_: Record) -> None:
        await asyncio.sleep(3600)

    world.put("a")
    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.run("orders", take, start=OLDEST), 60)
        other = world.client("c2")
        await world.until(lambda: other.texts == ["a"], seconds=10)


async def test_run_raises_its_reason_though_the_store_is_down(world: World) -> None:
    async def fail(_: Record) -> None:
        client.store.down = True
        raise ValueError

    world.put("a")
    with pytest.raises(HandlerFailedError):
        async with InMemory(world) as client:
            await client.run(
                "orders", fail, start=OLDEST, retries=RetryPolicy(max_attempts=1)
            )


async def test_a_run_that_never_started_registers_nothing(world: World) -> None:
    async def take(_: Record) -> None: ...

    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.run("orders", take), 0.1)
    assert world.members() == {}
