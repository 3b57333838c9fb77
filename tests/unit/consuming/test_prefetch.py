"""The byte budget over all shards, and the queue of batches."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.consuming.prefetch import (
    RECORD_OVERHEAD_BYTES,
    PrefetchBuffer,
    data_bytes,
    memory_size,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.simulation.event_loop import VirtualLoop
from tests.support.world import APP, ARN, World, batch_of, hold, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import FetchedBatch

settle = asyncio.sleep


def ask(world: World, buffer: PrefetchBuffer, size: int) -> asyncio.Task[None]:
    return world.loop.create_task(buffer.reserve(size))


def test_a_batch_tells_its_shard_and_what_a_sink_stores_with_it() -> None:
    fetched = batch_of(hold(), 1, 2)
    batch = fetched.for_user(fetched.records)
    assert (batch.stream, batch.stream_arn) == ("orders", ARN)
    assert batch.shard_id == "shardId-000000000000"
    fence, shard = batch.fence, (ARN, "shardId-000000000000")
    assert (fence.stream_arn, fence.shard_id) == shard
    assert fence == (shard, 1, APP, Position("2"))
    assert fetched.for_user(fetched.records[:1]).fence.position == Position("1")
    assert fetched.for_user([]).fence.position is None
    assert len(batch) == 2


def test_a_records_memory_is_more_than_its_data() -> None:
    records = [Record("1", b"x" * 10), Record("2", b"y" * 30)]
    assert memory_size(records) == 40 + 2 * RECORD_OVERHEAD_BYTES


def test_the_data_of_a_part_of_a_batch_is_counted() -> None:
    batch = batch_of(hold(), 1, 2, 30)
    assert data_bytes(batch, 0, 3) == len(b"data 1data 2data 30")
    assert data_bytes(batch, 1, 3) == len(b"data 2data 30")
    assert data_bytes(batch, 1, 1) == 0


@in_virtual_time
async def test_readers_wait_until_their_bytes_are_free(world: World) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(60)
    waiting = ask(world, buffer, 60)
    await settle(1)
    assert not waiting.done()
    assert buffer.used == 60
    buffer.release(20)
    await waiting
    assert buffer.used == 100


@in_virtual_time
async def test_first_come_first_served_even_if_a_later_one_would_fit(
    world: World,
) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(60)
    large, small = ask(world, buffer, 80), ask(world, buffer, 10)
    await settle(1)
    assert not large.done()
    assert not small.done()
    buffer.release(60)
    await asyncio.gather(large, small)


@in_virtual_time
async def test_more_than_the_whole_budget_is_let_through_alone(world: World) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(500)
    waiting = ask(world, buffer, 1)
    await settle(1)
    assert not waiting.done()
    buffer.release(500)
    await waiting
    assert buffer.used == 1


@in_virtual_time
async def test_one_who_gives_up_waiting_lets_those_behind_through(
    world: World,
) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(60)
    large, small = ask(world, buffer, 80), ask(world, buffer, 10)
    await settle(1)
    large.cancel()
    await small
    assert large.cancelled()
    assert buffer.used == 70


@in_virtual_time
async def test_one_who_gives_up_when_just_served_gives_the_bytes_back(
    world: World,
) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(100)
    served, behind = ask(world, buffer, 80), ask(world, buffer, 80)
    await settle(1)
    buffer.release(100)
    served.cancel()
    await behind
    assert served.cancelled()
    assert buffer.used == 80


@in_virtual_time
async def test_one_who_gives_up_just_before_bytes_are_free_is_cancelled(
    world: World,
) -> None:
    """Revoking a shard does this: cancels its reader, then drops its batches."""
    buffer = PrefetchBuffer(100)
    await buffer.reserve(100)
    leaving, behind = ask(world, buffer, 80), ask(world, buffer, 80)
    await settle(1)
    leaving.cancel()
    buffer.release(100)
    await behind
    assert leaving.cancelled()
    assert buffer.used == 80


@in_virtual_time
async def test_batches_come_out_in_order(world: World) -> None:
    buffer, owned = PrefetchBuffer(1000), hold()
    first, second = batch_of(owned, 1), batch_of(owned, 2)
    buffer.put(first)
    buffer.put(second)
    assert [await buffer.get(), await buffer.get()] == [first, second]


@in_virtual_time
async def test_who_waits_gets_the_batch_that_is_put(world: World) -> None:
    buffer = PrefetchBuffer(1000)
    waiting = world.loop.create_task(buffer.get())
    await settle(1)
    batch = batch_of(hold(), 1)
    buffer.put(batch)
    assert await waiting is batch


@in_virtual_time
async def test_who_waits_can_be_woken_without_a_batch(world: World) -> None:
    buffer = PrefetchBuffer(1000)
    waiting = world.loop.create_task(buffer.get())
    await settle(1)
    buffer.wake()
    assert await waiting is None


@in_virtual_time
async def test_a_batch_isnt_lost_with_a_taker_that_gives_up(world: World) -> None:
    buffer = PrefetchBuffer(1000)
    waiting = world.loop.create_task(buffer.get())
    await settle(1)
    batch = batch_of(hold(), 1)
    waiting.cancel()
    buffer.put(batch)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await buffer.get() is batch


@in_virtual_time
async def test_receivers_that_gave_up_leave_nothing_behind(world: World) -> None:
    buffer = PrefetchBuffer(100)
    for _ in range(10):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(buffer.get(), 1)
    assert not buffer._receivers


@in_virtual_time
async def test_dropping_a_shard_frees_its_bytes_and_keeps_the_others(
    world: World,
) -> None:
    buffer, lost, kept = PrefetchBuffer(100), hold(), hold()
    batches: list[FetchedBatch] = [
        batch_of(owned, n, size=30) for n, owned in enumerate((lost, kept, lost))
    ]
    for batch in batches:
        await buffer.reserve(30)
        buffer.put(batch)
    waiting = ask(world, buffer, 70)
    await settle(1)
    buffer.drop(lost)
    await waiting
    assert buffer.used == 100
    assert await buffer.get() is batches[1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=20))
def test_the_budget_is_never_exceeded_and_never_leaks(
    askers: list[tuple[int, bool]],
) -> None:
    async def work(buffer: PrefetchBuffer, size: int, hold_for: float) -> None:
        await buffer.reserve(size)
        try:
            assert buffer.used <= 100
            await settle(hold_for)
        finally:
            buffer.release(size)

    async def main(loop: VirtualLoop) -> None:
        buffer = PrefetchBuffer(100)
        tasks = [loop.create_task(work(buffer, size, size % 7)) for size, _ in askers]
        await settle(1)
        for task, (_, gives_up) in zip(tasks, askers, strict=True):
            if gives_up:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert buffer.used == 0

    loop = VirtualLoop(Random(0))
    loop.run(main(loop))


@in_virtual_time
async def test_a_shard_that_has_some_leaves_a_quarter_to_those_that_have_none(
    world: World,
) -> None:
    buffer, slow, other = PrefetchBuffer(100), hold(), hold()
    waiting = fill(world, buffer, slow, 30)
    await settle(1)
    assert buffer.used == 60
    await buffer.reserve(30, other)
    assert not waiting.done()
    buffer.release(30)
    await settle(1)
    assert not waiting.done()
    batch = await buffer.get()
    assert batch is not None
    buffer.give_back(slow, batch.size)
    await settle(1)
    assert slow.buffered == buffer.used == 60


@in_virtual_time
async def test_what_is_dropped_of_a_shard_counts_no_longer(world: World) -> None:
    buffer, slow = PrefetchBuffer(100), hold()
    waiting = fill(world, buffer, slow, 30)
    await settle(1)
    waiting.cancel()
    buffer.drop(slow)
    assert slow.buffered == buffer.used == 0


def fill(
    world: World, buffer: PrefetchBuffer, owned: OwnedShard, size: int
) -> asyncio.Task[None]:
    """Let a reader fetch batches until it has to wait."""

    async def read() -> None:
        for number in range(10):
            await buffer.reserve(size, owned)
            buffer.put(batch_of(owned, number, size=size))

    return world.loop.create_task(read())
