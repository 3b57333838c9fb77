"""Test that other tasks run between two records of blocking user code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.delivery import Desk, block
from tests.support.world import World, hold


def loop_over(desk: Desk, what: str) -> AsyncIterator[object]:
    return aiter(desk.records if what == "records" else desk.records.batches())


async def times_of(
    world: World, what: str, *, held: float = 0.0, awaited: float = 0.0
) -> list[float]:
    """Return when user code gets each of three records; it waits and blocks between."""
    desk, times = Desk(world), list[float]()
    for number in range(3):
        desk.put(hold(), number)
    async for _ in loop_over(desk, what):
        times.append(world.clock.now())
        if len(times) == 3:
            break
        await asyncio.sleep(awaited)
        block(world, held)
    return times


@pytest.mark.parametrize("what", ["records", "batches"])
async def test_other_tasks_run_between_two_batches_of_user_code_that_never_awaits(
    world: World, what: str
) -> None:
    async def take_in() -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    desk, owned = Desk(world), hold()
    for number in range(40):
        desk.put(owned, number)
    answers: list[asyncio.Task[None]] = []
    async for _ in loop_over(desk, what):
        assert all(answer.done() for answer in answers)
        block(world, 0.1)
        answers.append(world.loop.create_task(take_in()))
        if len(answers) == 40:
            break


@pytest.mark.parametrize("what", ["records", "batches"])
@pytest.mark.parametrize(
    ("held", "awaited", "seconds"), [(4, 0, 4.2), (0.2, 0, 0.2), (0, 100, 100)]
)
async def test_the_loop_runs_for_a_share_of_a_long_hold_only(
    world: World, what: str, held: float, awaited: float, seconds: float
) -> None:
    first, second, third = await times_of(world, what, held=held, awaited=awaited)
    assert second - first == pytest.approx(seconds, abs=0.01)
    assert third - second == pytest.approx(seconds, abs=0.02)


async def test_the_loop_runs_after_a_hold_that_follows_an_await(world: World) -> None:
    first, second, _ = await times_of(world, "batches", held=4, awaited=3)
    assert 0.15 < second - first - 7 < 0.21


async def test_no_timer_goes_on_while_user_code_waits(world: World) -> None:
    desk = Desk(world)
    desk.put(hold(), 1)
    assert await desk.next() == "1"
    assert await desk.nothing_for(10)
    assert desk.delivery._lag.seconds() == 0
    assert desk.delivery._lag._due is None
