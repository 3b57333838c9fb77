"""Test whole clients together: shares, hand-overs, crashes and dead sessions."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.coordination import pauses
from kinesumer.coordination.membership import SessionRenewed
from kinesumer.core.liveness import Lease
from kinesumer.errors import ShardsLostError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.ops.group import changes
from kinesumer.ops.group.seek import plan_seek
from kinesumer.ops.group.seek import seek as seek_planned
from kinesumer.wire import admin_writes, writes
from tests.support.clients import (
    Thinking,
    counts,
    numbers,
    reader,
    settled,
    sharing,
    spread,
)
from tests.support.faulty import FaultyStore
from tests.support.world import APP, SHARD, World

# --- sharing ---


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


P = "shardId-000000000000"


async def seek(
    world: World, to: Position | Start = Start.TRIM_HORIZON, shard: str | None = None
) -> None:
    """Seek as ``kinesumer seek`` does."""
    context = world.context("operator")
    stream = world.open(world.kinesis.source("orders"))
    await seek_planned(context, await plan_seek(context, stream, to, shard))


async def seek_without_notice(world: World) -> None:
    """Seek a shard without notifying clients, as an interrupted seek does."""
    row = world.shard_rows()[P]
    write = admin_writes.seek(APP, row, Start.TRIM_HORIZON, waits=False)
    await world.table.write(write)


async def drain(world: World, client_id: str, *, undo: bool = False) -> None:
    await changes.drain(world.context("operator"), client_id, undo=undo)


# --- seeks ---


async def test_a_seek_to_the_beginning_delivers_all_again(world: World) -> None:
    clients = await sharing(world, "c1", "c2")
    spread(world, *numbers(0, 80))
    await world.until(lambda: len(counts(*clients)) == 80)
    await asyncio.sleep(10)
    await seek(world)
    await world.until(lambda: {*counts(*clients).values()} == {2}, seconds=10)
    await asyncio.sleep(60)
    assert {*counts(*clients).values()} == {2}


async def test_a_seek_during_reading_loses_nothing(world: World) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    for n in range(60):
        spread(world, *numbers(4 * n, 4 * n + 4))
        await asyncio.sleep(0.5)
        if n == 30:
            await seek(world)
    await world.until(lambda: len(counts(*clients)) == 240)
    await asyncio.sleep(30)
    found = counts(*clients)
    assert {found[text] for text in numbers(0, 118)} <= {1, 2}
    assert {found[text] for text in numbers(140, 240)} == {1}
    assert max(found.values()) == 2


async def test_the_next_commit_finds_a_seek_without_notice(world: World) -> None:
    client = await reader(world, "a")
    await asyncio.sleep(6)
    await seek_without_notice(world)
    await asyncio.sleep(10)
    assert client.texts == ["a"]
    world.put("b")
    await world.until(lambda: client.texts == [*"abab"], seconds=6)
    await asyncio.sleep(10)
    assert world.shard_rows()[P].position is not None


async def test_a_seek_without_notice_is_found_in_a_minute(world: World) -> None:
    client = await reader(world, "a")
    await asyncio.sleep(6)
    await seek_without_notice(world)
    await world.until(lambda: client.texts == ["a", "a"], seconds=61)


async def test_acks_from_before_a_seek_are_not_lost(world: World) -> None:
    client = await reader(world, "ab", commit="manual")
    await seek(world)
    await world.until(lambda: client.texts == [*"abab"], seconds=60)
    client.group.ack(client.seen[0])
    await client.run(client.group.commit())
    assert world.shard_rows()[P].position is None
    client.group.ack(client.seen[2])
    await client.run(client.group.commit())
    assert world.shard_rows()[P].position == client.seen[0].position


async def test_after_a_seek_acks_of_shards_moved_away_are_lost(world: World) -> None:
    client = await reader(world, "ab", commit="manual")
    await seek(world)
    await world.until(lambda: client.texts == [*"abab"], seconds=60)
    other = world.client("c2")
    await world.until(lambda: "c2" in world.members())
    await drain(world, "c1")
    await world.until(lambda: other.held == [P])
    client.group.ack(client.seen[2])
    with pytest.raises(ShardsLostError):
        await client.run(client.group.commit())


async def test_a_paused_shard_is_read_from_its_seek_when_resumed(world: World) -> None:
    client = await reader(world, "ab")
    operator = world.context("operator")
    await pauses.pause(operator, "orders")
    await world.until(lambda: client.held == [])
    await seek(world)
    await asyncio.sleep(70)
    assert client.texts == [*"ab"]
    await pauses.resume(operator, "orders")
    await world.until(lambda: client.texts == [*"abab"], seconds=5)


async def test_a_shard_seeked_and_paused_at_once_has_no_owner(world: World) -> None:
    client = await reader(world, "ab")
    await seek(world)
    await pauses.pause(world.context("operator"), "orders", P)
    await world.until(lambda: world.shard_rows()[P].owner == "", seconds=5)
    await asyncio.sleep(70)
    assert (client.held, client.texts) == ([], [*"ab"])


async def test_a_shard_seeked_while_it_moves_follows_the_plan(world: World) -> None:
    first = await reader(world, "ab")
    second = world.client("c2")
    await world.until(lambda: "c2" in world.members())
    await drain(world, "c1")
    await world.until(lambda: world.members()["c1"].range == ())
    await seek_without_notice(world)
    await world.until(lambda: second.texts == [*"ab"], seconds=10)
    assert first.held == []


# --- pauses and drains ---


async def test_a_drained_client_hands_over_until_that_is_undone(world: World) -> None:
    clients = first, second = await sharing(world, "c1", "c2")
    await drain(world, "c2")
    for n in range(100):
        spread(world, *numbers(8 * n, 8 * n + 8))
        await asyncio.sleep(0.1)
    await world.until(lambda: len(counts(*clients)) == 800)
    assert set(counts(*clients).values()) == {1}
    assert (len(first.held), second.held) == (8, [])
    assert not world.members()["c2"].dead
    await drain(world, "c2", undo=True)
    await settled(world, first, second, shards=8)
    assert len(second.held) == 4
