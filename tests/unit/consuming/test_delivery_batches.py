"""Handing batches to user code: what is marked, what is left out, who may ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import ConfigurationError
from kinesumer.model.positions import Position
from tests.support.delivery import Desk
from tests.support.world import World, hold, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.model.records import Record


async def take(desk: Desk, count: int) -> list[list[str]]:
    """Iterate over batches and leave with the last one in hand."""
    taken: list[list[Record]] = []
    async for batch in desk.records.batches():
        taken.append(batch.records)
        if len(taken) == count:
            break
    return [[record.sequence_number for record in records] for records in taken]


@in_virtual_time
async def test_asking_marks_the_whole_batch_before_as_done(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2)
    desk.put(owned, 3, 4)
    assert await take(desk, 2) == [["1", "2"], ["3", "4"]]
    assert desk.done(owned) == Position("2")


@in_virtual_time
async def test_batches_of_revoked_shards_and_empty_ones_are_left_out(
    world: World,
) -> None:
    desk, lost, kept = Desk(world), hold(), hold()
    desk.put(lost, 1)
    empty = desk.put(kept)
    empty.end = Position("2")
    desk.put(kept, 3)
    lost.revoke()
    assert await take(desk, 1) == [["3"]]
    assert desk.done(kept) == Position("2")


@in_virtual_time
async def test_a_batch_waits_for_the_lease(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1)
    owned.lease.deadline = 0
    waiting = world.loop.create_task(take(desk, 1))
    await asyncio.sleep(10)
    assert not waiting.done()
    owned.lease.deadline = 1e9
    assert await waiting == [["1"]]


@in_virtual_time
async def test_batches_go_on_where_records_were_left(world: World) -> None:
    desk, owned = Desk(world), hold()
    desk.put(owned, 1, 2, 3)
    assert await desk.next() == "1"
    assert await take(desk, 1) == [["2", "3"]]
    assert desk.done(owned) == Position("1")


@in_virtual_time
async def test_batches_end_with_the_client(world: World) -> None:
    desk = Desk(world)
    world.loop.call_later(1, desk.delivery.close)
    assert await take(desk, 1) == []


@in_virtual_time
async def test_a_second_task_that_asks_for_batches_is_refused(world: World) -> None:
    desk, owned = Desk(world), hold()
    first = world.loop.create_task(take(desk, 2))
    await asyncio.sleep(1)
    with pytest.raises(ConfigurationError, match="two tasks iterate over batches"):
        await take(desk, 1)
    desk.put(owned, 1)
    desk.put(owned, 2)
    assert await first == [["1"], ["2"]]


@in_virtual_time
async def test_who_stopped_waiting_for_a_batch_stands_in_nobodys_way(
    world: World,
) -> None:
    desk, owned = Desk(world), hold()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(desk.records.batches()), 1)
    desk.put(owned, 1)
    assert await take(desk, 1) == [["1"]]


@in_virtual_time
async def test_with_manual_commits_several_tasks_may_ask_for_batches(
    world: World,
) -> None:
    desk, owned = Desk(world, auto=False), hold()
    both = [world.loop.create_task(take(desk, 1)) for _ in range(2)]
    await asyncio.sleep(1)
    desk.put(owned, 1)
    desk.put(owned, 2)
    assert await asyncio.gather(*both) == [[["1"]], [["2"]]]
    assert desk.done(owned) is None
