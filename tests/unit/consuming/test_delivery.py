"""Test the delivery of records: acknowledging, dropping and pausing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kinesumer.consuming.records import Records
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


async def test_iterating_again_goes_on_with_the_next_record(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3)
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


async def test_asking_with_a_timeout_loses_nothing(world: World) -> None:
    desk, owned = Desk(world), hold()
    assert await desk.nothing_for(1)
    desk.put(owned, 1, 2)
    assert [await desk.next(), await desk.next()] == ["1", "2"]
    assert await desk.nothing_for(1)
    assert await desk.nothing_for(1)
    desk.put(owned, 3)
    assert await desk.next() == "3"


async def test_a_closed_generator_goes_on_within_its_batch(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3)
    generator = aiter(desk.records)
    assert (await anext(generator)).sequence_number == "1"
    await generator.aclose()  # type: ignore[attr-defined]
    assert desk.done(owned) is None
    assert await desk.next() == "2"
    assert desk.done(owned) == Position("1")


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


async def test_giving_up_in_a_pause_loses_nothing(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3)
    assert await desk.next() == "1"
    owned.lease.deadline = world.clock.now()
    assert await desk.nothing_for(10)
    assert await desk.nothing_for(10)
    owned.lease.deadline = world.clock.now() + 6
    assert [await desk.next(), await desk.next()] == ["2", "3"]


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


async def test_user_code_is_busy_while_it_has_a_record(world: World) -> None:
    desk, _ = deliver(world, 1)
    await asyncio.sleep(5)
    assert desk.busy_since() is None
    await desk.next()
    assert desk.busy_since() == 5
    assert await desk.nothing_for(1)
    assert desk.busy_since() is None


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


async def test_half_of_max_uncommitted_done_is_stored_at_once(world: World) -> None:
    desk, owned = Desk(world), hold(max_uncommitted_records=4)
    desk.put(owned, 1)
    desk.put(owned, 2)
    await desk.next()
    await desk.next()
    assert (desk.checkpointer.requests, desk.delivery.records) == (0, 1)
    assert await desk.nothing_for(1)
    assert (desk.checkpointer.requests, desk.delivery.records) == (1, 2)


# --- manual ---


async def test_with_manual_commits_asking_never_marks(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3, auto=False)
    first = await anext(desk.records)
    await desk.next()
    await desk.next()
    assert await desk.nothing_for(1)
    assert desk.done(owned) is None
    assert not owned.is_idle
    owned.progress.mark(first.position)
    assert desk.done(owned) == Position("1")


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


async def test_revoked_and_empty_batches_are_left_out(world: World) -> None:
    desk, lost, kept = Desk(world), hold(), hold()
    desk.put(lost, 1)
    empty = desk.put(kept)
    empty.end = Position("2")
    desk.put(kept, 3)
    lost.revoke()
    assert await take(desk, 1) == [["3"]]
    assert desk.done(kept) == Position("2")


async def test_a_batch_waits_for_the_lease(world: World) -> None:
    desk, owned = deliver(world, 1)
    owned.lease.deadline = 0
    waiting = world.loop.create_task(take(desk, 1))
    await asyncio.sleep(10)
    assert not waiting.done()
    owned.lease.deadline = 1e9
    assert await waiting == [["1"]]


async def test_batches_go_on_where_records_were_left(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3)
    assert await desk.next() == "1"
    assert await take(desk, 1) == [["2", "3"]]
    assert desk.done(owned) == Position("1")


class StoredShard:
    """An isolated shard whose record is stored while its reader has not noticed it."""

    revoked = False
    is_finished = True

    def __init__(self) -> None:
        self.suspects = SimpleNamespace(is_in_turn=True)
        self.checks = 0

    async def all_stored(self, _seconds: float) -> bool:
        self.checks += 1
        assert self.checks < 100, "the reader never runs"
        return True


async def test_waiting_for_an_isolated_record_lets_the_reader_run(world: World) -> None:
    desk, shard = Desk(world), StoredShard()
    waiting = asyncio.create_task(desk.delivery._until_stored(shard))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not waiting.done()
    shard.suspects.is_in_turn = False
    await waiting
