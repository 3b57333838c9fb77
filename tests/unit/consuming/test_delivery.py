"""Handing records to user code: what is marked, what is dropped, when it pauses."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.consuming.records import Records
from kinesumer.errors import StreamRecreatedError
from kinesumer.model.positions import Position
from tests.support.delivery import Desk
from tests.support.world import World, hold, in_virtual_time, shard_row


@in_virtual_time
async def test_asking_marks_the_record_before_as_done(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    assert await desk.next() == "1"
    assert desk.done(owned) is None
    assert await desk.next() == "2"
    assert desk.done(owned) == Position("1")


@in_virtual_time
async def test_asking_for_more_than_there_is_marks_the_last_one(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1)
    await desk.next()
    assert await desk.nothing_for(1)
    assert desk.done(owned) == Position("1")


@in_virtual_time
async def test_an_exception_leaves_the_record_in_hand_unmarked(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    with pytest.raises(ZeroDivisionError):
        async for record in desk.records:
            if record.sequence_number == "2":
                raise ZeroDivisionError
    assert desk.done(owned) == Position("1")


@in_virtual_time
async def test_break_leaves_the_record_in_hand_unmarked(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    async for _record in desk.records:
        break
    assert desk.done(owned) is None


@in_virtual_time
async def test_cancelling_leaves_the_record_in_hand_unmarked(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)

    async def consume() -> None:
        async for record in desk.records:
            if record.sequence_number == "2":
                await asyncio.sleep(3600)

    task = world.loop.create_task(consume())
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert desk.done(owned) == Position("1")


@in_virtual_time
async def test_iterating_again_goes_on_with_the_next_record(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    seen = []
    async for record in desk.records:
        seen.append(record.sequence_number)
        break
    async for record in desk.records:
        seen.append(record.sequence_number)
        if len(seen) == 3:
            break
    assert seen == ["1", "2", "3"]
    assert desk.done(owned) == Position("2")
    assert desk.starts == 1


@in_virtual_time
async def test_asking_with_a_timeout_loses_nothing(world: World) -> None:
    desk, owned = Desk(world), hold()
    assert await desk.nothing_for(1)
    desk.put(owned, 1, 2)
    assert [await desk.next(), await desk.next()] == ["1", "2"]
    assert await desk.nothing_for(1)
    assert await desk.nothing_for(1)
    desk.put(owned, 3)
    assert await desk.next() == "3"


@in_virtual_time
async def test_a_closed_generator_goes_on_within_its_batch(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    generator = aiter(desk.records)
    assert (await anext(generator)).sequence_number == "1"
    await generator.aclose()  # type: ignore[attr-defined]
    assert desk.done(owned) is None
    assert await desk.next() == "2"
    assert desk.done(owned) == Position("1")


# --- the lease ---


@in_virtual_time
async def test_a_lapsed_lease_pauses_within_the_batch_and_goes_on(
    world: World,
) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    assert await desk.next() == "1"
    owned.lease.deadline = world.clock.now()
    waiting = world.loop.create_task(desk.next())
    await asyncio.sleep(30)
    assert not waiting.done()
    assert desk.done(owned) == Position("1")
    owned.lease.deadline = world.clock.now() + 6
    assert await waiting == "2"
    assert await desk.next() == "3"


@in_virtual_time
async def test_giving_up_in_a_pause_loses_nothing(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    assert await desk.next() == "1"
    owned.lease.deadline = world.clock.now()
    assert await desk.nothing_for(10)
    assert await desk.nothing_for(10)
    owned.lease.deadline = world.clock.now() + 6
    assert [await desk.next(), await desk.next()] == ["2", "3"]


@in_virtual_time
async def test_a_batch_of_a_shard_lost_in_the_pause_is_dropped(world: World) -> None:
    desk, lost, kept = Desk(world), hold(), hold(shard_row("shardId-000000000001"))
    desk.put(lost, 1, 2, 3)
    desk.put(kept, 7)
    assert await desk.next() == "1"
    lost.lease.deadline = world.clock.now()
    waiting = world.loop.create_task(desk.next())
    await asyncio.sleep(1)
    lost.revoke()
    assert await waiting == "7"


@in_virtual_time
async def test_nothing_of_a_revoked_shard_follows_the_record_in_hand(
    world: World,
) -> None:
    desk, lost, kept = Desk(world), hold(), hold(shard_row("shardId-000000000001"))
    desk.put(lost, 1, 2, 3)
    desk.put(lost, 4)
    desk.put(kept, 7)
    assert await desk.next() == "1"
    lost.revoke()
    desk.delivery.sync_progress()
    assert not await lost.drained(1)
    assert await desk.next() == "7"
    assert lost.position == Position("1")
    assert await lost.drained(1)
    assert desk.buffer.used == 426


@in_virtual_time
async def test_while_user_code_works_it_is_busy_and_while_it_waits_it_is_not(
    world: World,
) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1)
    await asyncio.sleep(5)
    assert desk.busy_since() is None
    await desk.next()
    assert desk.busy_since() == 5
    assert await desk.nothing_for(1)
    assert desk.busy_since() is None


@in_virtual_time
async def test_a_pause_is_not_user_codes_time(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1)
    owned.lease.deadline = 0
    assert await desk.nothing_for(600)
    assert desk.busy_since() is None
    owned.lease.deadline = 1e9
    assert await desk.next() == "1"
    assert desk.busy_since() == 600


@in_virtual_time
async def test_a_pause_within_a_batch_is_not_user_codes_time_either(
    world: World,
) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2)
    await desk.next()
    owned.lease.deadline = 0
    waiting = world.loop.create_task(desk.next())
    await asyncio.sleep(600)
    assert desk.busy_since() is None
    owned.lease.deadline = 1e9
    await waiting
    assert desk.busy_since() == pytest.approx(600, abs=0.1)


# --- the end ---


@in_virtual_time
async def test_closing_ends_the_iteration(world: World) -> None:
    desk = Desk(world)
    world.loop.call_later(1, desk.delivery.close)
    assert [record async for record in desk.records] == []


@in_virtual_time
async def test_closing_ends_a_pause(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1)
    owned.lease.deadline = 0
    world.loop.call_later(1, desk.delivery.close)
    assert [record async for record in desk.records] == []


@in_virtual_time
async def test_a_fatal_fault_ends_the_iteration_with_its_reason(world: World) -> None:
    desk = Desk(world)
    why = StreamRecreatedError("made anew")
    world.loop.call_later(1, desk.delivery.close, why)
    with pytest.raises(StreamRecreatedError, match="made anew"):
        await desk.next()
    with pytest.raises(StreamRecreatedError, match="made anew"):
        await desk.next()


@in_virtual_time
async def test_the_first_reason_stays(world: World) -> None:
    desk = Desk(world)
    desk.delivery.close(StreamRecreatedError("made anew"))
    desk.delivery.close()
    desk.delivery.close(ValueError())
    with pytest.raises(StreamRecreatedError):
        await desk.next()


@in_virtual_time
async def test_a_start_that_fails_is_tried_again(world: World) -> None:
    desk = Desk(world)
    failing = [ValueError("no table")]

    async def start() -> None:
        if failing:
            raise failing.pop()

    records = Records(desk.delivery, start)
    with pytest.raises(ValueError, match="no table"):
        await anext(records)
    desk.put(hold(), 1)
    assert (await anext(records)).sequence_number == "1"


# --- commits ---


@in_virtual_time
async def test_half_of_max_uncommitted_done_is_stored_at_once(world: World) -> None:
    desk, owned = Desk(world), hold(max_uncommitted_records=4)
    desk.put(owned, 1)
    desk.put(owned, 2)
    await desk.next()
    await desk.next()
    assert desk.checkpointer.requests == 0
    assert await desk.nothing_for(1)
    assert desk.checkpointer.requests == 1


@in_virtual_time
async def test_records_that_were_handed_out_are_counted(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2)
    desk.put(owned, 3)
    for _ in range(3):
        await desk.next()
    assert desk.delivery.records == 2


@in_virtual_time
async def test_a_page_that_held_nothing_to_deliver_moves_the_position(
    world: World,
) -> None:
    desk, owned = Desk(world), hold()
    empty = desk.put(owned)
    empty.end = Position("9")
    assert await desk.nothing_for(1)
    assert desk.done(owned) == Position("9")


# --- manual ---


@in_virtual_time
async def test_with_manual_commits_asking_never_marks(world: World) -> None:
    desk, owned = Desk(world, auto=False), hold()
    desk.put(owned, 1, 2, 3)
    first = await anext(desk.records)
    await desk.next()
    await desk.next()
    assert await desk.nothing_for(1)
    assert desk.done(owned) is None
    assert not owned.is_idle
    owned.progress.mark(first.position)
    assert desk.done(owned) == Position("1")
