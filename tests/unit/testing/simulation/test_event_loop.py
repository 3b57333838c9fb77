"""Test virtual time, and machines that freeze, sleep and die."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kinesumer.testing.simulation.event_loop import SpinningError, VirtualLoop
from kinesumer.testing.simulation.machine import Machine
from tests.support.simulated import on_virtual_loop


def run(main: Any, seed: int = 0) -> Any:
    loop = VirtualLoop(random.Random(seed))
    return loop.run(main(loop))


async def tick(machine: Machine, seen: list[float], seconds: float = 1.0) -> None:
    while True:
        await asyncio.sleep(seconds)
        seen.append(machine.loop.real)


@on_virtual_loop
async def test_an_hour_of_sleep_takes_no_time(loop: VirtualLoop) -> None:
    await asyncio.sleep(3600)
    assert loop.real == 3600


@on_virtual_loop
async def test_a_machines_timers_follow_its_own_clock(loop: VirtualLoop) -> None:
    seen: list[float] = []
    fast = loop.machine("fast", rate=1.25)
    loop.spawn(fast, tick(fast, seen))
    await asyncio.sleep(2.5)
    assert fast.now() == pytest.approx(3.125)
    assert seen == pytest.approx([0.8, 1.6, 2.4])


@pytest.mark.parametrize(
    ("suspend", "expected"), [(False, [1, 11.5, 12.5]), (True, [1, 12])]
)
@on_virtual_loop
async def test_a_frozen_machine_catches_up_but_timers_stand_still_in_suspend(
    loop: VirtualLoop, suspend: bool, expected: list[float]
) -> None:
    seen: list[float] = []
    machine = loop.machine("m")
    loop.spawn(machine, tick(machine, seen))
    await asyncio.sleep(1.5)
    machine.freeze(10, suspend=suspend)
    await asyncio.sleep(11)
    assert machine.now() == 12.5
    assert seen == expected


@on_virtual_loop
async def test_a_timeout_on_a_drifting_machine_lasts_as_long_as_its_clock_says(
    loop: VirtualLoop,
) -> None:
    async def wait() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.Event().wait()

    await loop.spawn(loop.machine("m", rate=0.5), wait())
    assert loop.real == pytest.approx(6)


@on_virtual_loop
async def test_a_killed_machine_cleans_nothing_up(loop: VirtualLoop) -> None:
    cleaned: list[str] = []

    async def hold() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")
            await asyncio.sleep(1)

    machine = loop.machine("m")
    loop.spawn(machine, hold())
    await asyncio.sleep(1)
    machine.kill()
    await asyncio.sleep(10)
    assert not cleaned


@on_virtual_loop
async def test_a_machine_is_killed_between_any_two_callbacks(loop: VirtualLoop) -> None:
    machine, seen = loop.machine("m"), list[float]()
    loop.spawn(machine, tick(machine, seen, 0))
    machine.after_steps(7, machine.kill)
    await asyncio.sleep(1)
    assert len(seen) == 7


def test_the_order_of_machines_is_drawn_and_repeats_with_its_seed() -> None:
    async def main(loop: VirtualLoop) -> str:
        seen: list[str] = []

        async def write(name: str) -> None:
            for _ in range(5):
                seen.append(name)
                await asyncio.sleep(0)

        await asyncio.gather(*(loop.spawn(loop.machine(n), write(n)) for n in "abc"))
        return "".join(seen)

    orders = [run(main, seed) for seed in (1, 2, 3, 1, 2, 3)]
    assert orders[:3] == orders[3:]
    assert len({*orders}) == 3


def test_a_loop_that_waits_for_nothing_is_reported() -> None:
    async def main(loop: VirtualLoop) -> None:
        while loop.real == 0:
            await asyncio.sleep(0)

    with pytest.raises(SpinningError, match="spinning at 0"):
        run(main)


def test_cancelled_task_groups_unwind_in_the_same_order_each_time() -> None:
    async def main(loop: VirtualLoop) -> list[int]:
        ended: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(40):
                    group.create_task(wait(number))
                await asyncio.sleep(1)
                raise ValueError
        return ended

    assert run(main) == run(main)
