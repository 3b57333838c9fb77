"""Test the delivery of records, and the iterators of records and batches."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace

import pytest

from kinesumer.consuming.delivery import Records
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from tests.support.clients import OLDEST, place, shard
from tests.support.delivery import Desk, deliver, numbers
from tests.support.world import ARN, SHARD, InMemory, World, hold, shard_row


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


async def test_asking_with_a_timeout_loses_nothing(world: World) -> None:
    desk, owned = Desk(world), hold()
    assert await desk.nothing_for(1)
    desk.put(owned, 1, 2)
    assert [await desk.next(), await desk.next()] == ["1", "2"]
    assert await desk.nothing_for(1)
    assert await desk.nothing_for(1)
    desk.put(owned, 3)
    assert await desk.next() == "3"


async def test_a_task_may_replace_one_that_it_cancelled(world: World) -> None:
    desk = Desk(world)
    waiting = world.loop.create_task(anext(desk.records))
    await asyncio.sleep(1)
    waiting.cancel()
    desk.put(hold(), 1)
    async for record in desk.records:
        assert record.sequence_number == "1"
        break


async def test_a_task_with_a_timeout_keeps_its_own_loop(world: World) -> None:
    desk = Desk(world, auto=False)
    batches, seen = desk.records.batches(), list[list[int]]()

    async def work() -> None:
        while True:
            with suppress(TimeoutError):
                seen.append(numbers(await asyncio.wait_for(anext(batches), 2)))

    tasks = [world.loop.create_task(work()) for _ in range(2)]
    await asyncio.sleep(5)
    for number in range(4):
        desk.put(hold(), number)
        await asyncio.sleep(3)
    assert seen == [[0], [1], [2], [3]]
    assert desk.buffer.used == 0
    for task in tasks:
        task.cancel()


async def test_each_task_that_shares_an_iterator_has_its_batch(world: World) -> None:
    desk = Desk(world, auto=False)
    batches = desk.records.batches()

    async def work(seconds: float) -> None:
        async for _ in batches:
            await asyncio.sleep(seconds)

    tasks = [world.loop.create_task(work(seconds)) for seconds in (2, 3600)]
    await asyncio.sleep(1)
    desk.put(hold(), 1)
    other = desk.put(hold(), 2, 3)
    await asyncio.sleep(3)
    assert desk.buffer.used == other.size  # the second task still works at it
    for task in tasks:
        task.cancel()


async def test_closing_a_shared_iterator_ends_the_loops_of_all_tasks(
    world: World,
) -> None:
    desk = Desk(world, auto=False)
    batches = desk.records.batches()

    async def work() -> None:
        async for _ in batches:
            await asyncio.sleep(3600)

    tasks = [world.loop.create_task(work()) for _ in range(2)]
    await asyncio.sleep(1)
    for number in range(2):
        desk.put(hold(), number)
    await asyncio.sleep(1)
    assert desk.buffer.used > 0
    await batches.aclose()
    assert desk.buffer.used == 0
    desk.put(hold(), 2)
    assert numbers(await anext(batches)) == [2]
    for task in tasks:
        task.cancel()


async def test_a_block_that_ends_without_an_error_acknowledges_the_record_in_hand(
    world: World,
) -> None:
    world.put(*"abcdefgh")
    async with InMemory(world) as client:
        async with client.consume("orders", start=OLDEST) as records:
            async for record in records:
                if record.data == b"b":
                    break
    assert shard(world).position == place(world, 1)
    with pytest.raises(ValueError, match="d"):
        async with InMemory(world) as client, client.consume("orders") as records:
            async for record in records:
                if record.data == b"d":
                    raise ValueError("d")
    assert shard(world).position == place(world, 2)
    async with InMemory(world) as client:
        async with client.consume("orders").batches() as batches:
            batch = await anext(batches)
        assert batch.records[0].data == b"d"
        assert (
            client.positions()[ShardKey(ARN, SHARD)].done == batch.records[-1].position
        )


async def test_a_loop_may_be_closed_with_and_without_an_acknowledgement(
    world: World,
) -> None:
    world.put(*"abcd")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST)
        await anext(records)
        await records.aclose(ack=True)
        assert client.positions()[ShardKey(ARN, SHARD)].done == place(world, 0)
        assert [(await anext(records)).data for _ in range(2)] == [b"b", b"c"]
        await records.aclose()
        assert client.lag()[ShardKey(ARN, SHARD)].records_in_hand == 1
    assert shard(world).position == place(world, 1)
