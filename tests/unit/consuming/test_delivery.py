"""Test the delivery of records: acknowledging, dropping and pausing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kinesumer.errors import StreamRecreatedError
from kinesumer.model.positions import Position
from tests.support.delivery import Desk, deliver
from tests.support.world import World, hold, shard_row


async def test_asking_marks_the_record_before_as_done(world: World) -> None:
    desk, owned = deliver(world, 1, 2)
    assert await desk.next() == "1"
    assert desk.done(owned) is None
    assert await desk.next() == "2"
    assert desk.done(owned) == Position("1")
    assert await desk.nothing_for(1)  # asks for a third record, which there isn't
    assert desk.done(owned) == Position("2")


# --- the lease ---


async def test_a_lapsed_lease_pauses_within_the_batch(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3)
    assert await desk.next() == "1"
    owned.lease.deadline = world.clock.now()
    waiting = world.loop.create_task(desk.next())
    await asyncio.sleep(30)
    assert not waiting.done()
    assert desk.done(owned) == Position("1")
    owned.lease.deadline = world.clock.now() + 6
    assert await waiting == "2"
    assert await desk.next() == "3"


async def test_a_revoked_shard_delivers_no_further_record(world: World) -> None:
    desk, lost, kept = Desk(world), hold(), hold(shard_row("shardId-000000000001"))
    desk.put(lost, 1, 2, 3)
    desk.put(lost, 4)
    desk.put(kept, 7)
    assert await desk.next() == "1"
    lost.revoke()
    desk.buffer.drop(lost)
    desk.delivery.sync_progress()
    assert not await lost.drained(1)
    assert await desk.next() == "7"
    assert lost.position == Position("1")
    assert await lost.drained(1)
    assert desk.buffer.used == 426


async def test_a_pause_before_or_within_a_batch_is_not_user_codes_time(
    world: World,
) -> None:
    desk, owned = deliver(world, 1, 2)
    for count in (1, 2):
        owned.lease.deadline = 0
        waiting = world.loop.create_task(desk.next())
        await asyncio.sleep(60)
        assert desk.busy_since() is None
        owned.lease.deadline = 1e9
        assert await waiting == str(count)
        assert desk.busy_since() == pytest.approx(60 * count, abs=0.2)


# --- the end ---


@pytest.mark.parametrize("deadline", [0, 1e9])
async def test_closing_ends_the_iteration_and_a_pause(
    world: World, deadline: float
) -> None:
    desk, owned = deliver(world, 1)
    owned.lease.deadline = deadline
    world.loop.call_later(1, desk.delivery.close)
    assert len([record async for record in desk.records]) == (deadline > 0)


async def test_a_fatal_fault_ends_the_iteration_with_its_reason(world: World) -> None:
    desk = Desk(world)
    why = StreamRecreatedError("made anew")
    world.loop.call_later(1, desk.delivery.close, why)
    for later in (None, ValueError(), None):
        with pytest.raises(StreamRecreatedError, match="made anew"):
            await desk.next()
        desk.delivery.close(later)  # doesn't replace the first reason


# --- batches ---


async def take(desk: Desk, count: int) -> list[list[str]]:
    """Iterate over ``count`` batches, and break out of the loop at the last one."""
    taken: list[list[str]] = []
    async for batch in desk.records.batches():
        taken.append([record.sequence_number for record in batch.records])
        if len(taken) == count:
            break
    return taken


async def test_asking_marks_the_whole_batch_before_as_done(world: World) -> None:
    desk, owned = deliver(world, 1, 2)
    desk.put(owned, 3, 4)
    assert await take(desk, 2) == [["1", "2"], ["3", "4"]]
    assert desk.done(owned) == Position("2")


async def test_an_isolated_record_is_stored_before_the_next_request_is_answered(
    world: World,
) -> None:
    desk, owned = Desk(world), hold()
    turn = SimpleNamespace(is_in_turn=True, due=None, may_forget=lambda _: False)
    owned.suspects = turn  # type: ignore[assignment]
    desk.put(owned, 1)
    await desk.next()
    waiting = world.loop.create_task(desk.next())
    await asyncio.sleep(1)
    assert desk.done(owned) == Position("1")
    owned.stored(Position("1"))
    desk.put(hold(), 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    turn.is_in_turn = False  # the reader runs meanwhile, and ends the turn
    assert await waiting == "2"
