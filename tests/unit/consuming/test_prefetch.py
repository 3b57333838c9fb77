"""Test the byte budget over all shards, and the queue of batches."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch, OpenedStep, PrefetchBuffer
from kinesumer.model.records import RECORD_OVERHEAD_BYTES, Record, memory_size
from kinesumer.testing.simulation.event_loop import VirtualLoop
from tests.support.steps import steps
from tests.support.world import World, batch_of, hold


def ask(world: World, buffer: PrefetchBuffer, size: int) -> asyncio.Task[None]:
    return world.loop.create_task(buffer.reserve(size))


def test_a_records_memory_is_more_than_its_data() -> None:
    records = [Record("1", b"x" * 10), Record("2", b"y" * 30)]
    assert memory_size(records) == 40 + 2 * RECORD_OVERHEAD_BYTES


def test_the_data_of_a_part_of_a_batch_is_counted() -> None:
    batch = batch_of(hold(), 1, 2, 30)
    assert batch.data_bytes(0, 3) == len(b"data 1data 2data 30")
    assert batch.data_bytes(1, 3) == len(b"data 2data 30")
    assert batch.data_bytes(1, 1) == 0


@pytest.mark.parametrize(("first", "second", "released"), [(60, 60, 20), (500, 1, 500)])
async def test_readers_wait_until_their_bytes_are_free_or_they_are_alone(
    world: World, first: int, second: int, released: int
) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(first)
    waiting = ask(world, buffer, second)
    await asyncio.sleep(1)
    assert not waiting.done()
    assert buffer.used == first
    buffer.release(released)
    await waiting
    assert buffer.used == first + second - released


async def test_readers_are_served_in_order_whatever_their_size(world: World) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(60)
    large, small = ask(world, buffer, 80), ask(world, buffer, 10)
    await asyncio.sleep(1)
    assert not large.done()
    assert not small.done()
    buffer.release(60)
    await asyncio.gather(large, small)


async def test_a_reader_that_gives_up_lets_the_next_through(world: World) -> None:
    buffer = PrefetchBuffer(100)
    await buffer.reserve(60)
    large, small = ask(world, buffer, 80), ask(world, buffer, 10)
    await asyncio.sleep(1)
    large.cancel()
    await small
    assert large.cancelled()
    assert buffer.used == 70


@pytest.mark.parametrize("is_served", [True, False])
async def test_a_cancelled_reader_leaves_its_bytes_to_the_next(
    world: World, is_served: bool
) -> None:
    """A revoked shard's reader is cancelled before or after bytes become free."""
    buffer = PrefetchBuffer(100)
    await buffer.reserve(100)
    leaving, behind = ask(world, buffer, 80), ask(world, buffer, 80)
    await asyncio.sleep(1)
    if is_served:
        buffer.release(100)
    leaving.cancel()
    if not is_served:
        buffer.release(100)
    await behind
    assert leaving.cancelled()
    assert buffer.used == 80


async def test_a_release_examines_no_reader_that_waits_for_the_window(
    world: World,
) -> None:
    found = []
    for count in (10, 1000):
        buffer = PrefetchBuffer(64 << 20)
        half = buffer.window.size // 2
        waiting = [
            world.loop.create_task(buffer.reserve(100, in_flight=half))
            for _ in range(count)
        ]
        await asyncio.sleep(0)
        assert sum(task.done() for task in waiting) == 2  # they fill the window
        # Small answers don't wait for it.
        await asyncio.wait_for(buffer.reserve(100), 1)
        found.append(steps(partial(buffer.release, 100)))
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
    assert found[0] == found[1]


async def test_a_receiver_waits_for_batches_and_gets_them_in_order(
    world: World,
) -> None:
    buffer, owned = PrefetchBuffer(1000), hold()
    first, second = batch_of(owned, 1), batch_of(owned, 2)
    waiting = world.loop.create_task(buffer.get())
    await asyncio.sleep(1)
    buffer.put(first)
    buffer.put(second)
    assert [await waiting, await buffer.get()] == [first, second]
    waiting = world.loop.create_task(buffer.get())
    await asyncio.sleep(1)
    buffer.wake()
    assert await waiting is None


async def test_a_receiver_that_gives_up_loses_no_batch(world: World) -> None:
    buffer = PrefetchBuffer(1000)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(buffer.get(), 1)
    assert not buffer._receivers
    waiting = world.loop.create_task(buffer.get())
    await asyncio.sleep(1)
    batch = batch_of(hold(), 1)
    waiting.cancel()
    buffer.put(batch)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await buffer.get() is batch


async def test_dropping_a_shard_frees_only_its_bytes(world: World) -> None:
    buffer, lost, kept = PrefetchBuffer(100), hold(), hold()
    batches: list[FetchedBatch] = [
        batch_of(owned, n, size=30) for n, owned in enumerate((lost, kept, lost))
    ]
    for batch in batches:
        await buffer.reserve(30)
        buffer.put(batch)
    waiting = ask(world, buffer, 70)
    await asyncio.sleep(1)
    buffer.drop(lost)
    await waiting
    assert buffer.used == 100
    assert await buffer.get() is batches[1]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 100), st.booleans()), max_size=12))
def test_the_budget_is_never_exceeded_and_never_leaks(
    askers: list[tuple[int, bool]],
) -> None:
    async def work(buffer: PrefetchBuffer, size: int, hold_for: float) -> None:
        await buffer.reserve(size)
        try:
            assert buffer.used <= 100
            await asyncio.sleep(hold_for)
        finally:
            buffer.release(size)

    async def main(loop: VirtualLoop) -> None:
        buffer = PrefetchBuffer(100)
        tasks = [loop.create_task(work(buffer, size, size % 7)) for size, _ in askers]
        await asyncio.sleep(1)
        for task, (_, gives_up) in zip(tasks, askers, strict=True):
            if gives_up:
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert buffer.used == 0

    loop = VirtualLoop(Random(0))
    loop.run(main(loop))


async def test_shards_with_bytes_leave_a_quarter_to_the_others(world: World) -> None:
    buffer, slow, other = PrefetchBuffer(100), hold(), hold()
    waiting = fill(world, buffer, slow, 30)
    await asyncio.sleep(1)
    assert buffer.used == slow.buffered == 60
    await buffer.reserve(30, other)
    assert not waiting.done()
    buffer.release(30)
    await asyncio.sleep(1)
    assert not waiting.done()
    batch = await buffer.get()
    assert batch is not None
    buffer.give_back(slow, batch.size)
    await asyncio.sleep(1)
    assert slow.buffered == buffer.used == 60
    waiting.cancel()
    buffer.drop(slow)
    assert slow.buffered == buffer.used == 0


async def test_opened_aggregates_get_free_memory_before_new_pages(
    world: World,
) -> None:
    buffer, owned, other = PrefetchBuffer(100), hold(), hold()
    await buffer.reserve(60)
    buffer.put(batch_of(owned, 1, size=60))
    await buffer.reserve(40)
    opening = world.loop.create_task(
        buffer.open(other, iter([OpenedStep([batch_of(other, 2, size=60)], 0, 0)]))
    )
    reading = ask(world, buffer, 10)
    await asyncio.sleep(1)
    assert not opening.done()
    await buffer.get()
    buffer.give_back(owned, 60)
    await opening
    await asyncio.sleep(1)
    assert not reading.done()
    assert buffer.used == 100
    buffer.release(40)
    await reading


def fill(
    world: World, buffer: PrefetchBuffer, owned: OwnedShard, size: int
) -> asyncio.Task[None]:
    """Start a reader that fetches ten batches, and waits while the buffer is full."""

    async def read() -> None:
        for number in range(10):
            await buffer.reserve(size, owned)
            buffer.put(batch_of(owned, number, size=size))

    return world.loop.create_task(read())
