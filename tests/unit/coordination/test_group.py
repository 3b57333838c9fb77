"""Whole clients together: shares, hand-overs, crashes, sessions that die."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import ShardsLostError
from kinesumer.wire import writes
from tests.support.clients import counts, numbers, settled, spread
from tests.support.world import APP, FaultyStore, World, in_virtual_time

P = "shardId-000000000000"


# --- sharing ---


@in_virtual_time
async def test_clients_that_start_together_on_an_empty_table_share_at_once(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    spread(world, *numbers(0, 8))
    clients = [world.client(f"c{n}") for n in range(3)]
    await settled(world, *clients, shards=8)
    assert world.clock.now() < 10
    assert sum(client.leads for client in clients) == 1
    await world.until(lambda: len(counts(*clients)) == 8)


@in_virtual_time
async def test_the_first_record_comes_within_three_seconds(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    spread(world, *numbers(0, 8))
    client = world.client("c1")
    await world.until(lambda: len(client.seen) == 8, seconds=3)


@in_virtual_time
async def test_a_join_moves_shards_without_a_record_lost_or_repeated(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 8)
    first = world.client("c1")
    await settled(world, first, shards=8)
    second = world.client("c2")
    for n in range(300):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.1)
    await settled(world, first, second, shards=8)
    await world.until(lambda: len(counts(first, second)) == 2400)
    assert set(counts(first, second).values()) == {1}
    assert len(second.seen) > 800


@in_virtual_time
async def test_leaving_hands_over_without_a_record_repeated(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    stays, leaves = world.client("c1"), world.client("c2")
    await settled(world, stays, leaves, shards=8)
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


@in_virtual_time
async def test_who_stops_before_it_knows_of_its_registration_leaves_all_the_same(
    world: World,
) -> None:
    store = FaultyStore(world.table)
    store.spoil("unanswered", "session")
    client = world.client("c1", store=store)
    await world.until(world.members)
    await client.stop()
    assert client.group.session is None
    assert world.members()["c1"].dead


@in_virtual_time
async def test_the_last_client_can_leave_too(world: World) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    await asyncio.wait_for(client.run(client.group.leave()), 0.1)
    await client.task
    await client.stop()
    assert world.shard_rows()[P].owner == ""


@in_virtual_time
async def test_a_crash_is_taken_over_in_time_and_nothing_is_lost(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    leader, victim = world.client("c1"), world.client("c2")
    await settled(world, leader, victim, shards=8)
    spread(world, *numbers(0, 800))
    await asyncio.sleep(7)
    victim.kill()
    spread(world, *numbers(800, 1600))
    await world.until(lambda: len(leader.held) == 8, seconds=11.5)
    await world.until(lambda: len(counts(leader, victim)) == 1600)
    assert set(leader.texts) >= set(numbers(800, 1600))


@in_virtual_time
async def test_a_crash_of_the_leader_is_taken_over_in_time(world: World) -> None:
    world.kinesis.create_stream("orders", 8)
    leader, standby = world.client("c1"), world.client("c2")
    await settled(world, leader, standby, shards=8)
    first, second = (leader, standby) if leader.leads else (standby, leader)
    first.kill()
    await world.until(lambda: len(second.held) == 8, seconds=13.5)
    assert second.leads


@in_virtual_time
async def test_a_static_id_takes_its_old_place_and_nothing_else_moves(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 9)
    clients = [world.client(f"pod-{n}") for n in range(3)]
    await settled(world, *clients, shards=9)
    await asyncio.sleep(10)
    before = {name: row.epoch for name, row in world.shard_rows().items()}
    held = clients[1].held
    clients[1].kill()
    again = world.client("pod-1")
    await world.until(lambda: again.held == held)
    await asyncio.sleep(30)
    after = {name: row.epoch for name, row in world.shard_rows().items()}
    assert {name for name in after if after[name] != before[name]} == {*held}


# --- death of a session ---


@in_virtual_time
async def test_a_client_told_dead_drops_everything_and_comes_back(
    world: World,
) -> None:
    world.put("a", "b")
    client = world.client("c1", commit="manual")
    await world.until(lambda: len(client.seen) == 2)
    session = world.members()["c1"].session
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: world.shard_rows()[P].epoch == 2)
    await world.until(lambda: len(client.seen) == 4)
    assert client.texts == ["a", "b", "a", "b"]
    assert world.members()["c1"].session != session
    client.group.ack(client.seen[0])
    with pytest.raises(ShardsLostError):
        await client.run(client.group.commit())
    client.group.ack(client.seen[2])
    await client.run(client.group.commit())
    assert world.shard_rows()[P].position == client.seen[0].position


@in_virtual_time
async def test_user_code_in_the_middle_of_a_lost_batch_goes_on_with_the_next(
    world: World,
) -> None:
    async def slow(_: object) -> None:
        await asyncio.sleep(3)

    world.put(*"abc")
    client = world.client("c1", handle=slow)
    await world.until(lambda: client.seen)
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: len(client.seen) == 4)
    assert client.texts == ["a", "a", "b", "c"]


@in_virtual_time
async def test_marks_of_a_session_that_died_are_told_as_lost(world: World) -> None:
    world.put("a", "b")
    client = world.client("c1", commit="manual")
    await world.until(lambda: len(client.seen) == 2)
    client.group.ack(client.seen[0])
    await world.table.write(writes.fence(APP, world.members()["c1"], "now"))
    await world.until(lambda: world.shard_rows()[P].epoch == 2)
    with pytest.raises(ShardsLostError, match=f"orders/{P}"):
        await client.run(client.group.commit())
    await client.run(client.group.commit())


@in_virtual_time
async def test_an_answer_older_than_the_plan_at_hand_changes_nothing(
    world: World,
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    old = world.members()["c1"]._replace(range=(), leader_epoch=0, plan_version=0)
    client.group._follow(old)
    await asyncio.sleep(10)
    assert client.held == [P]
    assert world.shard_rows()[P].epoch == 1


@in_virtual_time
async def test_streams_refreshed_between_two_sessions_are_consumed(
    world: World,
) -> None:
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


@in_virtual_time
async def test_user_code_without_progress_loses_its_shards_and_cannot_commit(
    world: World,
) -> None:
    async def hang(_: object) -> None:
        await asyncio.sleep(200)

    world.put("a", "b")
    stuck = world.client("c1", handle=hang, max_processing_seconds=60)
    await world.until(lambda: stuck.seen)
    healthy = world.client("c2")
    await world.until(lambda: healthy.texts == ["a", "b"], seconds=90)
    await asyncio.sleep(100)
    assert stuck.texts == ["a"]
    row = world.shard_rows()[P]
    assert (row.owner_id, row.epoch) == ("c2", 2)
    assert row.position == healthy.seen[1].position
    assert world.members()["c1"].dead
    await asyncio.sleep(60)
    assert not world.members()["c1"].dead
