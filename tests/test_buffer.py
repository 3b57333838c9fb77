"""The byte budget: who waits for room, and who gives up waiting."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.buffer import Buffer


async def waiting(buffer: Buffer, size: int) -> asyncio.Task[None]:
    """Return a task that asks for room and doesn't get it yet."""
    task = asyncio.get_running_loop().create_task(buffer.reserve(size))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_who_waits_for_room_gets_it_in_order() -> None:
    buffer = Buffer(100)
    await buffer.reserve(100)
    first, second = await waiting(buffer, 80), await waiting(buffer, 10)
    buffer.release(50)
    await asyncio.sleep(0)
    assert not first.done()
    assert not second.done()
    buffer.release(50)
    await asyncio.gather(first, second)
    assert buffer.used == 90


async def test_more_than_the_whole_budget_waits_until_nothing_else_is_held() -> None:
    buffer = Buffer(100)
    await buffer.reserve(10)
    large = await waiting(buffer, 1000)
    buffer.release(10)
    await large
    assert buffer.used == 1000


async def test_who_gives_up_waiting_lets_those_behind_through() -> None:
    buffer = Buffer(100)
    await buffer.reserve(90)
    large, small = await waiting(buffer, 80), await waiting(buffer, 10)
    large.cancel()
    await small
    with pytest.raises(asyncio.CancelledError):
        await large
    assert buffer.used == 100


async def test_who_gives_up_while_room_is_given_away_takes_none() -> None:
    buffer = Buffer(100)
    await buffer.reserve(100)
    first, second = await waiting(buffer, 80), await waiting(buffer, 70)
    first.cancel()
    buffer.release(100)
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert buffer.used == 70


async def test_who_gives_up_just_after_getting_room_gives_it_back() -> None:
    buffer = Buffer(100)
    await buffer.reserve(100)
    task = await waiting(buffer, 80)
    buffer.release(100)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert buffer.used == 0
