"""Test that shards take turns: none waits for two turns of another shard."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.consuming.owned_shard import OwnedShard
from tests.support.delivery import Desk
from tests.support.world import World, hold, in_virtual_time, shard_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kinesumer.model.records import Record

# The longest time of a turn whose records take no time.
TURN_SECONDS = 0.05


def shards(count: int) -> list[OwnedShard]:
    return [hold(shard_row(f"shardId-{number:012}")) for number in range(count)]


def letter(record: Record) -> str:
    """Return a letter for the record's shard: "a" for the first one."""
    return chr(ord("a") + int(record.shard_id[-3:]))


def block(world: World, seconds: float) -> None:
    """Let time pass as if code blocked the event loop."""
    world.loop.real += seconds


async def each(desk: Desk, what: str) -> AsyncIterator[str]:
    """Yield the letter of each record's or batch's shard."""
    if what == "records":
        async for record in desk.records:
            yield letter(record)
    else:
        async for batch in desk.records.batches():
            yield letter(batch.records[0])


async def order_of(
    desk: Desk, what: str, count: int, *, held: float = 0.0, awaited: float = 0.0
) -> str:
    """Return the shards of the first records or batches, which take some time each."""
    seen = ""
    async for shard in each(desk, what):
        seen += shard
        if len(seen) == count:
            break
        block(desk.world, held)
        await asyncio.sleep(awaited)
    return seen


async def decode(record: Record) -> bytes:
    return record.data


@pytest.mark.parametrize("decoder", [None, decode])
@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("time", ["held", "awaited"])
async def test_a_slow_loop_gets_a_record_of_each_shard_in_turn(
    world: World, time: str, decoder: object, *, auto: bool
) -> None:
    desk = Desk(world, auto=auto, decode=decoder)
    for owned in shards(3):
        desk.put(owned, *range(1000))
    times: Any = {time: 1.0}
    assert await order_of(desk, "records", 9, **times) == "abcabcabc"


async def test_a_turn_at_quick_records_is_bounded_by_time(world: World) -> None:
    desk = Desk(world)
    for owned in shards(2):
        desk.put(owned, *range(1000))
    assert await order_of(desk, "records", 12, held=0.02) == "aaabbbaaabbb"


async def test_batches_of_shards_come_in_turn_whatever_came_first(world: World) -> None:
    desk = Desk(world)
    one, other, third = shards(3)
    for number in range(4):
        desk.put(one, number)
    desk.put(other, 1)
    desk.put(other, 2)
    desk.put(third, 1)
    assert await order_of(desk, "batches", 7) == "abcabaa"


@pytest.mark.parametrize("what", ["records", "batches"])
async def test_the_first_records_of_a_shard_wait_only_for_the_present_turn(
    world: World, what: str
) -> None:
    desk = Desk(world)
    *busy, new = shards(4)
    for owned in busy:
        for _ in range(3):
            desk.put(owned, *range(100))
    seen = ""
    async for shard in each(desk, what):
        seen += shard
        if len(seen) == 5:
            desk.put(new, *range(100))
        if len(seen) == 8:
            break
        block(world, 1)
    assert seen == "abcabdca"


async def test_the_records_of_each_shard_stay_in_order(world: World) -> None:
    desk, seen = Desk(world), dict[str, list[int]]()
    for owned in shards(3):
        for first in range(0, 50, 10):
            desk.put(owned, *range(first, first + 10))
    async for record in desk.records:
        seen.setdefault(record.shard_id, []).append(int(record.sequence_number))
        if sum(map(len, seen.values())) == 150:
            break
        block(world, 0.03)
    assert list(seen.values()) == [list(range(50))] * 3


async def test_memory_is_released_when_all_turns_are_over(world: World) -> None:
    desk = Desk(world)
    for owned in shards(3):
        desk.put(owned, *range(10))
    await order_of(desk, "records", 30, held=1)
    assert await desk.nothing_for(1)
    assert desk.buffer.used == 0


async def test_a_batch_of_a_revoked_shard_does_not_wait_for_its_turn(
    world: World,
) -> None:
    desk = Desk(world)
    lost, *kept = shards(3)
    for owned in (lost, *kept):
        desk.put(owned, *range(10))
    assert await order_of(desk, "records", 3, held=1) == "abc"
    lost.revoke()
    assert await order_of(desk, "records", 2, held=1) == "bc"
    assert desk.buffer.used == sum(owned.buffered for owned in kept)


async def test_tasks_with_batches_of_their_own_share_the_turns(world: World) -> None:
    desk, seen = Desk(world, auto=False), list[str]()
    for owned in shards(4):
        for _ in range(3):
            desk.put(owned, 1)

    async def work() -> None:
        async for shard in each(desk, "batches"):
            seen.append(shard)
            await asyncio.sleep(1)

    tasks = [world.loop.create_task(work()) for _ in range(2)]
    await asyncio.sleep(20)
    assert "".join(seen) == "abcd" * 3
    for task in tasks:
        task.cancel()


# --- the bound ---


@given(
    st.lists(st.lists(st.integers(1, 40), max_size=4), min_size=2, max_size=6),
    st.lists(st.sampled_from([0.0, 0.004, 0.03, 0.2, 3.0]), min_size=1, max_size=6),
    st.sampled_from(["records", "batches"]),
)
@in_virtual_time
async def test_no_shard_waits_for_two_turns_of_another(
    world: World, sizes: list[list[int]], seconds: list[float], what: str
) -> None:
    """Let shards get batches before and while user code works for times that vary."""
    desk, owners, late = Desk(world), shards(len(sizes)), list[tuple[OwnedShard, int]]()
    waits = Waits(owners, is_whole=what == "batches")
    for owned, batches in zip(owners, sizes, strict=True):
        for number, size in enumerate(batches):
            if number % 2:
                late.append((owned, size))
            else:
                waits.put(desk, owned, size)
    iterator = aiter(desk.records if what == "records" else desk.records.batches())
    for step in range(sum(map(sum, sizes))):
        if not any(waits.left.values()):
            break
        got: Any = await anext(iterator)
        records = [got] if what == "records" else got.records
        waits.served(desk.owned[records[0].source], len(records), world.clock.now())
        block(world, seconds[step % len(seconds)])
        if late:
            waits.put(desk, *late.pop())


class Waits:
    """What each shard with records waits for."""

    def __init__(self, owners: list[OwnedShard], *, is_whole: bool) -> None:
        self.left = dict.fromkeys(owners, 0)  # records that user code hasn't got
        # For each shard, the turns of others since it waits: their numbers, and when
        # user code first got a record in them.
        self._turns: dict[OwnedShard, dict[OwnedShard, tuple[int, float]]]
        self._turns = {owned: {} for owned in owners}
        self._is_whole = is_whole
        self._last: OwnedShard | None = None
        self._number = 0

    def put(self, desk: Desk, owned: OwnedShard, size: int) -> None:
        desk.put(owned, *range(size))
        self.left[owned] += size

    def served(self, owned: OwnedShard, count: int, now: float) -> None:
        if self._is_whole or owned is not self._last:
            self._number += 1
        for other, turns in self._turns.items():
            if self.left[other] and other is not owned:
                number, began = turns.setdefault(owned, (self._number, now))
                assert number == self._number, "a second turn while another shard waits"
                assert now - began < TURN_SECONDS
        self._turns[owned].clear()
        self.left[owned] -= count
        self._last = owned
