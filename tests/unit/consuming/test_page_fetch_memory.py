"""Test that memory for answers is bounded, and that no reader waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.consuming.page_fetch import Reservation
from kinesumer.consuming.prefetch import (
    SMALL_PAGE_BYTES,
    FetchedBatch,
    OpenedStep,
    PrefetchBuffer,
    answer_memory,
)
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire.cbor import compiled
from tests.support.world import World, batch_of, hold

PAGE = FULL_PAGE_BYTES


async def reserved(buffer: PrefetchBuffer, size: int) -> Reservation:
    reservation = Reservation(buffer, hold())
    await reservation.take(size)
    return reservation


def memory_of(size: int) -> int:
    """Return the memory of an answer in the format that is asked for."""
    return answer_memory(size, is_cbor=compiled is not None)


def test_an_answer_takes_what_its_json_takes_or_its_records() -> None:
    assert answer_memory(14_000_000) == 14_700_000  # 10,000 records of 1 KB
    assert answer_memory(15_000) == 11_250 + 100 * 420
    full = 4 * 10 * 1024 * 1024 // 3 + 150 * 10_000
    assert 0.9 * PAGE < answer_memory(full) < PAGE
    assert answer_memory(15_000, max_records=10) == 11_250 + 10 * 420


def test_an_answer_in_cbor_takes_what_its_records_take() -> None:
    assert answer_memory(136_000, is_cbor=True) == 1_000 * 420
    assert answer_memory(136_000, 10, is_cbor=True) == 136_000 + 10 * (420 - 136)


async def test_all_but_small_answers_keep_within_the_window(world: World) -> None:
    buffer = PrefetchBuffer(10 * PAGE)
    buffer.window.size = 2 * PAGE
    first, _ = await reserved(buffer, PAGE), await reserved(buffer, PAGE)
    waiting = world.loop.create_task(reserved(buffer, SMALL_PAGE_BYTES + 1))
    await reserved(buffer, SMALL_PAGE_BYTES)
    await asyncio.sleep(1)
    assert not waiting.done()
    assert buffer.in_flight == 2 * PAGE
    first.answered(1000, 20.0)
    first.keep(500)
    await waiting
    assert buffer.in_flight == PAGE + SMALL_PAGE_BYTES + 1


async def test_one_answer_passes_a_window_that_is_too_small(world: World) -> None:
    buffer = PrefetchBuffer(10 * PAGE)
    buffer.window.size = PAGE // 8
    reservation = await reserved(buffer, PAGE)
    waiting = world.loop.create_task(reserved(buffer, PAGE))
    await asyncio.sleep(1)
    assert not waiting.done()
    reservation.close()
    await waiting
    assert buffer.in_flight == buffer.used == PAGE


async def test_a_small_answer_releases_memory_at_its_head(world: World) -> None:
    buffer = PrefetchBuffer(2 * PAGE)
    reservation, _ = await reserved(buffer, PAGE), await reserved(buffer, PAGE)
    waiting = world.loop.create_task(reserved(buffer, PAGE - 100_000))
    await asyncio.sleep(1)
    assert not waiting.done()
    reservation.shrink(1000)
    await waiting
    assert reservation.size == memory_of(1000)
    assert buffer.used == 2 * PAGE - 100_000 + reservation.size
    assert buffer.in_flight == 2 * PAGE - 100_000 + 1000
    reservation.shrink(10_000)
    reservation.answered(1000, 0.1)
    reservation.close()
    assert buffer.used == buffer.in_flight == 2 * PAGE - 100_000


async def test_room_that_grows_holds_nothing_while_it_waits(world: World) -> None:
    buffer = PrefetchBuffer(2 * PAGE)
    rooms = [await reserved(buffer, PAGE) for _ in range(2)]
    assert rooms[0].covers(10 << 20)
    assert rooms[0].covers(None)
    assert not rooms[0].covers(PAGE + 1)
    growing = [
        world.loop.create_task(reservation.grow(PAGE + 1)) for reservation in rooms
    ]
    await asyncio.sleep(1)
    # Both reservations must grow. The first one can: while the second one waits, it
    # gives its memory back.
    assert [task.done() for task in growing] == [True, False]
    assert buffer.used == buffer.in_flight == memory_of(PAGE + 1)
    rooms[0].close()
    await growing[1]
    rooms[1].close()
    assert buffer.used == buffer.in_flight == 0


async def test_pieces_are_opened_one_at_a_time(world: World) -> None:
    buffer = PrefetchBuffer(100)
    owned, other = hold(), hold()
    reservation, behind = Reservation(buffer, owned), Reservation(buffer, other)
    await reservation.take(40)
    await behind.take(40)
    opened = await reservation.open(opening(10, batch_of(owned, 1, size=60)))
    assert (buffer.used, buffer.opened) == (130, 60)
    waiting = world.loop.create_task(
        behind.open(opening(10, batch_of(other, 1, size=60)))
    )
    await asyncio.sleep(1)
    assert not waiting.done()
    for batch in opened or ():
        reservation.put(batch)
    assert (buffer.opened, buffer.delivered) == (0, 60)
    await asyncio.sleep(1)
    assert not waiting.done()
    taken = await buffer.get()
    assert taken is not None
    buffer.give_back(owned, taken.size)
    await waiting
    assert buffer.used == 30 + 30 + 60
    behind.close()
    reservation.close()
    assert buffer.used == buffer.opened == 0


async def test_a_piece_opens_if_pages_take_all_memory(world: World) -> None:
    buffer = PrefetchBuffer(100)
    owned = hold()
    reservation, _ = Reservation(buffer, owned), await reserved(buffer, 60)
    await reservation.take(40)
    opened = await reservation.open(opening(40, batch_of(owned, 1, size=90)))
    assert opened is not None
    assert opened[0].size == 90
    assert buffer.used == 150
    reservation.close()
    assert buffer.used == 60


async def test_pieces_come_before_answers_that_wait_for_room(world: World) -> None:
    buffer = PrefetchBuffer(100)
    owned = hold()
    reservation = Reservation(buffer, owned)
    await reservation.take(90)
    waiting = world.loop.create_task(reserved(buffer, 50))
    await asyncio.sleep(1)
    await reservation.open(opening(90, batch_of(owned, 1, size=70)))
    assert not waiting.done()
    reservation.close()
    await waiting


@pytest.mark.parametrize("at_once", [True, False])
async def test_an_opener_that_gives_up_lets_the_next_one_open(
    world: World, at_once: bool
) -> None:
    buffer = PrefetchBuffer(100)
    owned = hold()
    held = await reserved(buffer, 100)
    batch = batch_of(owned, 1, size=10)
    buffer.put(batch)
    rooms = [Reservation(buffer, hold()) for _ in range(2)]
    first, second = (
        world.loop.create_task(reservation.open(opening(0, batch)))
        for reservation in rooms
    )
    await asyncio.sleep(1)
    if at_once:
        held.close()  # the first reader gets its memory just before its cancellation
    first.cancel()
    await asyncio.sleep(1)
    held.close()
    assert await second == [batch]
    assert first.cancelled()


async def test_an_opener_that_fails_lets_the_next_one_open(world: World) -> None:
    buffer, reservation = PrefetchBuffer(100), Reservation(PrefetchBuffer(100), hold())
    with pytest.raises(ZeroDivisionError):
        await Reservation(buffer, hold()).open(OpenedStep([], 1 // n, 0) for n in (0,))
    assert await reservation.open(opening(0)) == []
    assert await Reservation(buffer, hold()).open(opening(0)) == []


async def test_a_partly_opened_aggregate_holds_memory(world: World) -> None:
    buffer, owned = PrefetchBuffer(1000), hold()
    reservation = Reservation(buffer, owned)
    await reservation.take(100)
    batch = batch_of(owned, 1, size=70)
    steps = iter(
        [
            OpenedStep([], 0, 30),
            OpenedStep([], 0, 50),
            OpenedStep([batch], 0, 50),
            OpenedStep([], 100, 0),
        ]
    )
    for used in (130, 150, 220, 70):
        await reservation.open(steps)
        assert buffer.used == used
    assert await reservation.open(steps) is None
    reservation.put(batch)
    reservation.close()
    assert buffer.used == buffer.delivered == 70


def opening(raw_bytes: int, *batches: FetchedBatch) -> Iterator[OpenedStep]:
    """Return the only step of opening aggregates."""
    return iter([OpenedStep([*batches], raw_bytes, 0)])


MIB = 1 << 20
SIZES = st.integers(1, 60).map(lambda size: size * MIB)
KINDS = st.sampled_from(["plain", "aggregates", "fails", "given up"])
STEPS = st.tuples(KINDS, SIZES, SIZES, st.integers(0, 5))


@settings(max_examples=60)
@given(
    st.lists(st.lists(STEPS, max_size=6), min_size=1, max_size=6),
    st.integers(1, 150),
    st.integers(0, 3),
)
def test_whatever_readers_do_memory_is_bounded_and_all_of_them_come_to_an_end(
    readers: list[list[tuple[str, int, int, int]]], limit: int, slow: int
) -> None:
    most = 60 * MIB  # a page or an opened piece needs no more

    async def read(
        buffer: PrefetchBuffer, steps: list[tuple[str, int, int, int]]
    ) -> None:
        owned = hold()
        for what, expected, size, seconds in steps:
            reservation = Reservation(buffer, owned)
            try:
                async with asyncio.timeout(3 if what == "given up" else 1e6):
                    await reservation.take(expected)
                    await asyncio.sleep(seconds)
                    if size > reservation.size:
                        reservation.close()
                        await reservation.take(size)
                    await asyncio.sleep(seconds)
                    if what == "fails":
                        continue
                    reservation.answered(size, seconds)
                    pieces = 3 if what == "aggregates" else 0
                    for _ in range(pieces):
                        piece = batch_of(owned, 1, size=expected)
                        opened = await reservation.open(
                            opening(reservation.size // 3, piece)
                        )
                        assert opened is not None
                        assert buffer.used <= max(limit * MIB, most) + most
                        await asyncio.sleep(seconds)
                        for batch in opened:
                            reservation.put(batch)
                    if not pieces:
                        reservation.put(batch_of(owned, 1, size=reservation.size))
            except TimeoutError:
                pass
            finally:
                reservation.close()

    async def take(buffer: PrefetchBuffer) -> None:
        while True:
            batch = await buffer.get()
            if batch is not None:
                await asyncio.sleep(slow)
                buffer.give_back(batch.owned, batch.size)

    async def main(loop: VirtualLoop) -> None:
        buffer = PrefetchBuffer(limit * MIB)
        taking = loop.create_task(take(buffer))
        tasks = [loop.create_task(read(buffer, steps)) for steps in readers]
        async with asyncio.timeout(1e5):
            await asyncio.gather(*tasks)
            while buffer.delivered:
                await asyncio.sleep(1)
        taking.cancel()
        assert buffer.used == buffer.in_flight == buffer.opened == 0

    loop = VirtualLoop(Random(0))
    loop.run(main(loop))
