"""Test whole clients together: shares, hand-overs, crashes and dead sessions."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.coordination.membership import SessionRenewed
from kinesumer.core.liveness import Lease
from kinesumer.errors import ShardsLostError
from kinesumer.wire import writes
from tests.support.clients import Thinking, counts, numbers, settled, sharing, spread
from tests.support.faulty import FaultyStore
from tests.support.world import APP, SHARD, World

# --- sharing ---


async def test_clients_that_start_together_share_at_once(world: World) -> None:
    clients = await sharing(world, "c0", "c1", "c2")
    assert world.clock.now() < 10
    assert sum(client.leads for client in clients) == 1
    spread(world, *numbers(0, 8))
    await world.until(lambda: len(counts(*clients)) == 8)


async def test_a_join_loses_and_repeats_no_record(world: World) -> None:
    [first] = await sharing(world, "c1")
    second = world.client("c2")
    for n in range(100):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.3)
    await settled(world, first, second, shards=8)
    await world.until(lambda: len(counts(first, second)) == 800)
    assert set(counts(first, second).values()) == {1}
    assert len(second.seen) > 250


async def test_leaving_hands_over_without_a_record_repeated(world: World) -> None:
    stays, leaves = await sharing(world, "c1", "c2")
    leaving = leaves.run(leaves.group.leave())
    for n in range(100):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.1)
    await leaving
    await leaves.task
    await leaves.stop()
    await world.until(lambda: len(counts(stays, leaves)) == 800)
    assert set(counts(stays, leaves).values()) == {1}
    assert leaves.held == []
    assert world.members()["c2"].dead


async def test_a_stop_leaves_with_an_unanswered_registration(world: World) -> None:
    store = FaultyStore(world.table)
    store.spoil("unanswered", "session")
    client = world.client("c1", store=store)
    await world.until(world.members)
    await client.stop()
    assert client.group.session is None
    assert world.members()["c1"].dead


async def test_the_last_client_can_leave_too(world: World) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    await asyncio.wait_for(client.run(client.group.leave()), 0.1)
    await client.task
    await client.stop()
    assert world.shard_rows()[SHARD].owner == ""


async def test_a_crash_is_taken_over_in_time_and_nothing_is_lost(world: World) -> None:
    leader, victim = await sharing(world, "c1", "c2")
    spread(world, *numbers(0, 800))
    await asyncio.sleep(7)
    victim.kill()
    spread(world, *numbers(800, 1600))
    await world.until(lambda: len(leader.held) == 8, seconds=11.5)
    await world.until(lambda: len(counts(leader, victim)) == 1600)
    assert set(leader.texts) >= set(numbers(800, 1600))


# --- death of a session ---


async def test_a_fenced_client_drops_its_shards_and_comes_back(world: World) -> None:
    world.put("a", "b")
    client = world.client("c1", commit="manual")
    await world.until(lambda: len(client.seen) == 2)
    session = world.members()["c1"].session
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: world.shard_rows()[SHARD].epoch == 2)
    await world.until(lambda: len(client.seen) == 4)
    assert client.texts == ["a", "b", "a", "b"]
    assert world.members()["c1"].session != session
    client.group.ack(client.seen[0])
    with pytest.raises(ShardsLostError):
        await client.run(client.group.commit())
    client.group.ack(client.seen[2])
    await client.run(client.group.commit())
    assert world.shard_rows()[SHARD].position == client.seen[0].position


async def test_user_code_in_a_lost_batch_continues_with_the_next(world: World) -> None:
    world.put(*"abc")
    client = world.client("c1", handle=Thinking(3))
    await world.until(lambda: client.seen)
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: len(client.seen) == 4)
    assert client.texts == ["a", "a", "b", "c"]


async def test_an_answer_older_than_the_plan_changes_nothing(world: World) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    old = world.members()["c1"]._replace(range=(), leader_epoch=0, plan_version=0)
    client.group._notify(SessionRenewed(Lease(old.session, 1e9), old))
    await asyncio.sleep(10)
    assert client.held == [SHARD]
    assert world.shard_rows()[SHARD].epoch == 1


async def test_streams_refreshed_between_sessions_are_consumed(world: World) -> None:
    world.kinesis.create_stream("payments")
    store = FaultyStore(world.table)
    client = world.client("c1", store=store)
    await world.until(lambda: client.held)
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: store.writes("beat"))
    store.latency = 0.5
    await world.until(lambda: client.group.session is None)
    await asyncio.sleep(0.9)
    await client.run(client.group.refresh(["orders", "payments"]))
    store.latency = 0.001
    world.put("a", stream="payments")
    await world.until(lambda: "a" in client.texts)
