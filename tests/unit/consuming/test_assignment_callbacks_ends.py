"""Test when on_assigned and on_revoked are slow, fail, hang or are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer import AssignedShard
from kinesumer.coordination import pauses
from tests.support.clients import (
    OLDEST,
    WAYS,
    CallbackUser,
    Thinking,
    death,
    fail,
    nothing,
    shard,
)
from tests.support.world import SHARD, InMemory, World

HALF = 1 << 127  # the first hash key of the second of two shards


# --- what a call may take -------------------------------------------------------------


async def test_a_release_waits_for_a_call_no_longer_than_the_drain_timeout(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = CallbackUser(world, drain_timeout_seconds=5.0)
    user.on_revoked = Thinking(30)
    world.put("a")
    async with user.running():
        await user.saw("a")
        await pauses.pause(world.context("operator"), "orders", SHARD)
        await user.saw("revoke 0 paused")
        await asyncio.sleep(4)
        assert shard(world).owner
        await asyncio.sleep(2)
        assert not shard(world).owner
        assert "on_revoked didn't return within 5 s" in caplog.text
        await pauses.resume(world.context("operator"), "orders", SHARD)
        await world.until(lambda: user.events.count("assigned 0") == 2)
        assert user.events[-3:] == ["revoked 0", "assign 0", "assigned 0"]


async def test_a_shard_given_up_during_on_assigned_is_revoked_when_it_returned(
    world: World,
) -> None:
    user = CallbackUser(world)
    user.on_assigned = Thinking(20)
    world.put("a")
    async with user.running():
        await user.saw("assign 0")
        await pauses.pause(world.context("operator"), "orders", SHARD)
        await user.saw("revoked 0")
        await world.until(lambda: not shard(world).owner)
        given = ["assign 0", "assigned 0", "revoke 0 paused", "revoked 0"]
        assert user.events == given


async def test_a_client_ends_though_a_call_hangs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = CallbackUser(world)
    cancelled: list[str] = []

    async def hang(given: AssignedShard) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(given.shard_id)
            raise

    user.on_revoked = hang
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("a")
    task.cancel()
    await asyncio.wait([task], timeout=60)
    await asyncio.sleep(0)
    assert task.cancelled()
    assert cancelled == [SHARD]
    assert not shard(world).owner


async def test_the_end_waits_for_no_record_of_a_lost_shard(world: World) -> None:
    user = CallbackUser(world)
    world.put("a")
    async with user.client:
        async for record in user.client.consume(
            "orders", start=OLDEST, on_assigned=user.assigned, on_revoked=user.revoked
        ):
            user.events.append(record.data.decode())
            await world.table.write(death(world))
            await asyncio.sleep(30)
            assert shard(world).epoch == 2
            break
        began = world.clock.now()
    assert world.clock.now() - began < 5
    given = ["assign 0", "assigned 0", "a", "revoke 0 lost", "revoked 0"]
    assert user.events == given


async def test_a_hanging_call_gives_the_shards_up(world: World) -> None:
    user = CallbackUser(world, max_processing_seconds=30.0)
    user.on_assigned = Thinking(300)
    world.put("a")
    task = asyncio.create_task(user.consume())
    await user.saw("assign 0")
    other = world.client("c2")
    await world.until(lambda: other.texts == ["a"], 90)
    user.on_assigned = nothing
    await user.client.leave()
    await asyncio.wait_for(task, 400)


async def test_leaving_a_block_revokes_shards_whose_record_is_in_hand(
    world: World,
) -> None:
    user = CallbackUser(world)
    world.put("a")
    async with user.client:
        async for record in user.client.consume(
            "orders", start=OLDEST, on_revoked=user.revoked
        ):
            user.events.append(record.data.decode())
            break
    assert user.events == ["a", "revoke 0 closed", "revoked 0"]
    assert shard(world).position is None


# --- errors ---------------------------------------------------------------------------


@WAYS
async def test_an_error_of_on_assigned_ends_the_client(world: World, way: Any) -> None:
    user = CallbackUser(world)
    user.on_assigned = fail
    world.put("a")
    with pytest.raises(OSError, match="no disk"):
        await asyncio.wait_for(way(user), 60)
    assert user.events == ["assign 0"]
    assert not shard(world).owner


@WAYS
async def test_an_error_of_on_revoked_ends_the_client(world: World, way: Any) -> None:
    user = CallbackUser(world)
    user.on_revoked = fail
    world.put("a")
    task = asyncio.create_task(way(user))
    await user.saw("a")
    await pauses.pause(world.context("operator"), "orders", SHARD)
    with pytest.raises(OSError, match="no disk"):
        await asyncio.wait_for(task, 60)
    assert user.events == ["assign 0", "assigned 0", "a", "revoke 0 paused"]
    assert not shard(world).owner


@WAYS
async def test_an_end_is_not_stored_if_on_revoked_failed(
    world: World, way: Any
) -> None:
    user = CallbackUser(world)
    user.on_revoked = fail
    world.put("a")
    world.kinesis.split("orders", SHARD)
    with pytest.raises(OSError, match="no disk"):
        await asyncio.wait_for(way(user), 60)
    assert not shard(world).ended
    again = CallbackUser(world, "c2")
    task = asyncio.create_task(way(again))
    await again.saw("assigned 2")
    calls = ["assign 0", "assigned 0", "revoke 0 ended", "revoked 0"]
    assert again.events[:4] == calls
    await again.client.leave()
    await task


@WAYS
async def test_an_error_at_the_end_is_raised_by_the_end(world: World, way: Any) -> None:
    user = CallbackUser(world)

    async def fail(_: AssignedShard) -> None:
        raise SystemExit(3)

    user.on_revoked = fail
    world.put("a")

    async def work() -> None:
        with pytest.raises(SystemExit):
            await way(user)

    task = asyncio.create_task(work())
    await user.saw("a")
    user.client._lifecycle.group.delivery.close()  # type: ignore[union-attr]
    await asyncio.wait_for(task, 60)
    assert not shard(world).owner


async def test_the_error_of_a_block_goes_before_one_of_on_revoked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    user = CallbackUser(world)

    async def fail_first(_: object) -> None:
        raise ValueError("no number")

    user.on_record, user.on_revoked = fail_first, fail
    world.put("a")
    with pytest.raises(ValueError, match="no number"):
        await user.consume()
    assert "on_revoked failed at orders shardId-000000000000" in caplog.text


async def test_a_call_that_cancels_itself_is_an_error(world: World) -> None:
    user = CallbackUser(world)

    async def cancel(_: AssignedShard) -> None:
        raise asyncio.CancelledError

    user.on_assigned = cancel
    with pytest.raises(Exception, match="on_assigned was cancelled"):
        await asyncio.wait_for(user.consume(), 60)


# --- arguments ------------------------------------------------------------------------


async def test_plain_functions_run_on_the_event_loop(world: World) -> None:
    calls: list[str] = []
    world.put("a")
    async with InMemory(world) as client:
        async for record in client.consume(
            "orders",
            start=OLDEST,
            on_assigned=lambda given: calls.append(given.shard_id),
            on_revoked=lambda _, reason: calls.append(reason),
        ):
            calls.append(record.data.decode())
            break
    assert calls == [SHARD, "a", "closed"]
