"""Test when on_assigned and on_revoked are called, and what waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer import AssignedShard, Record
from kinesumer.coordination import pauses
from kinesumer.errors import CommitTimeoutError
from kinesumer.model.positions import Position
from kinesumer.ops.group.seek import plan_seek
from kinesumer.ops.group.seek import seek as seek_planned
from tests.support.clients import (
    OLDEST,
    WAYS,
    CallbackUser,
    Thinking,
    death,
    shard,
)
from tests.support.world import SHARD, World

HALF = 1 << 127  # the first hash key of the second of two shards


@WAYS
async def test_calls_enclose_the_records_of_a_shard(world: World, way: Any) -> None:
    user = CallbackUser(world)
    world.put("a", "b")
    task = asyncio.create_task(way(user))
    await user.saw("b")
    await user.client.leave()
    await task
    calls = ["revoke 0 closed", "revoked 0"]
    assert user.events == ["assign 0", "assigned 0", "a", "b", *calls]


@WAYS
async def test_callbacks_get_the_shard_and_its_fence(world: World, way: Any) -> None:
    world.put("a", "b")
    for number in (1, 2):
        user = CallbackUser(world)
        task = asyncio.create_task(way(user))
        await user.saw("assigned 0")
        await asyncio.sleep(1)
        await user.client.leave()
        await task
        [given] = user.shards
        assert given.stream == "orders"
        assert given.shard_id == SHARD
        assert given.key == given.fence.shard == (given.stream_arn, SHARD)
        assert (given.fence.app, given.fence.epoch) == ("app", number)
    log = world.kinesis.stream("orders").shards[SHARD].log
    assert given.fence.position == Position(log[-1].sequence_number)


@WAYS
async def test_other_shards_go_on_while_a_callback_runs(world: World, way: Any) -> None:
    world.kinesis.create_stream("payments", 2)
    user = CallbackUser(world)
    blocked = asyncio.Event()

    async def wait(given: AssignedShard) -> None:
        if given.shard_id == SHARD:
            await blocked.wait()

    user.on_assigned = wait
    world.put("a", stream="payments")
    world.put("b", stream="payments", hash_key=HALF)
    async with user.running(way, "payments"):
        await user.saw("b")
        await asyncio.sleep(20)
        assert "a" not in user.events
        blocked.set()
        await user.saw("a")


@WAYS
async def test_a_shard_moves_after_its_last_record_and_the_call(
    world: World, way: Any
) -> None:
    world.kinesis.create_stream("payments", 2)
    user = CallbackUser(world)
    owner: list[str] = []

    async def look(given: AssignedShard) -> None:
        await asyncio.sleep(2)
        owner.append(world.shard_rows("payments")[given.shard_id].owner_id)

    user.on_record, user.on_revoked = Thinking(3), look
    world.put(*"abcdef", stream="payments", hash_key=HALF)
    task = asyncio.create_task(way(user, "payments"))
    await user.saw("a")
    other = world.client("c2", "payments")
    await world.until(lambda: len(user.events) + len(other.texts) > 11)
    index = user.events.index("revoke 1 moved")
    read = [event for event in user.events if len(event) == 1]
    assert [*read, *other.texts] == [*"abcdef"]
    assert user.events.index(read[-1]) < index
    assert owner[0] == "c1"
    await user.client.leave()
    await task
    assert user.events[-2:] == ["revoke 0 closed", "revoked 0"]


async def test_what_a_call_acknowledges_is_stored_with_the_release(
    world: World,
) -> None:
    user = CallbackUser(world, commit="manual", commit_interval_seconds=3600)

    async def acknowledge(_: AssignedShard) -> None:
        await asyncio.sleep(1)
        for record in user.kept:
            user.client.ack(record)

    user.on_record, user.on_revoked = user.keep, acknowledge
    world.put("a", "b")
    async with user.running():
        await user.saw("b")
        began = world.clock.now()
        await pauses.pause(world.context("operator"), "orders", SHARD)
        await world.until(lambda: not shard(world).owner)
        assert world.clock.now() - began < 10
        assert shard(world).position == user.kept[-1].position
        assert user.events[-2:] == ["revoke 0 paused", "revoked 0"]


@pytest.mark.parametrize("commit", ["auto", "manual"])
async def test_a_parent_is_revoked_before_its_children_are_assigned(
    world: World, commit: str
) -> None:
    user = CallbackUser(world, commit=commit)

    async def acknowledge(_: AssignedShard) -> None:
        assert not shard(world).ended
        await asyncio.sleep(40)  # longer than drain_timeout_seconds
        assert not shard(world).ended
        for record in user.kept:
            if commit == "manual":
                user.client.ack(record)

    user.on_record, user.on_revoked = user.keep, acknowledge
    world.put("a", "b")
    world.kinesis.split("orders", SHARD)
    world.put("c", hash_key=HALF)
    async with user.running():
        await user.saw("c", 120)
        ends = ["revoke 0 ended", "revoked 0"]
        assert user.events[:6] == ["assign 0", "assigned 0", "a", "b", *ends]
        assert sorted(user.events[6:]) == sorted(
            ["assign 1", "assigned 1", "assign 2", "assigned 2", "c"]
        )


async def test_a_closed_shard_waits_for_the_acknowledgements_of_others(
    world: World,
) -> None:
    user = CallbackUser(world, commit="manual")
    user.on_record = user.keep
    world.put("a")
    world.kinesis.split("orders", SHARD)
    async with user.running():
        await user.saw("revoked 0")
        await asyncio.sleep(60)
        assert not shard(world).ended
        user.client.ack(user.kept[0])
        await user.saw("assigned 2")
        assert shard(world).ended


@WAYS
async def test_a_seeked_shard_is_assigned_again(world: World, way: Any) -> None:
    user = CallbackUser(world)
    world.put("a")
    async with user.running(way):
        await user.saw("a")
        stream = world.open(world.kinesis.source("orders"))
        operator = world.context("operator")
        await seek_planned(operator, await plan_seek(operator, stream, OLDEST, SHARD))
        await world.until(lambda: user.events.count("a") == 2)
        calls = ["assign 0", "assigned 0", "a"]
        assert user.events == [*calls, "revoke 0 seeked", "revoked 0", *calls]
        first, second = (given.fence.epoch for given in user.shards)
        assert first < second


@WAYS
async def test_a_lost_shard_is_revoked_after_the_record_in_hand(
    world: World, way: Any
) -> None:
    user = CallbackUser(world)

    async def hang(_: Record) -> None:
        await asyncio.sleep(100)
        user.events.append("done")

    user.on_record = hang
    world.put("a")
    async with user.running(way):
        await user.saw("a")
        user.client.store.down = True
        await asyncio.sleep(20)
        other = world.client("c2")
        await world.until(lambda: other.texts == ["a"], 40)
        user.client.store.down = False
        await user.saw("done", 120)
        await user.saw("revoked 0")
        index = user.events.index("revoke 0 lost")
        assert user.events[index - 1] == "done"


@WAYS
async def test_a_shard_is_lost_when_the_lease_has_run_out_before_the_end(
    world: World, way: Any
) -> None:
    user = CallbackUser(world)
    world.put("a")
    task = asyncio.create_task(way(user))
    await user.saw("a")
    user.client.store.down = True
    await asyncio.sleep(20)
    began = world.clock.now()
    await user.client.leave()
    with pytest.raises(CommitTimeoutError):
        await task
    # Other clients may have claimed the shard by now.
    assert user.events[-2:] == ["revoke 0 lost", "revoked 0"]
    # The store is given the length of a lease, whatever time callbacks may take: once
    # at the end of run(), and once at the end of the block.
    assert world.clock.now() - began <= 16.2


async def test_a_client_that_gets_its_lost_shard_back_revokes_it_first(
    world: World,
) -> None:
    user = CallbackUser(world)
    user.on_revoked = Thinking(50)
    world.put("a")
    async with user.running():
        await user.saw("a")
        await world.table.write(death(world))
        await user.saw("revoked 0", 120)
        world.put("b")
        await user.saw("b")
        calls = ["revoke 0 lost", "revoked 0", "assign 0", "assigned 0"]
        assert [event for event in user.events[3:] if event not in "ab"] == calls
