"""Time-outs count no time in which the event loop was held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.runtime.timeouts import Countdown, timeout
from tests.support.world import World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.simulation.machine import Machine


class Asker:
    """Asks for something on a machine of its own, with a time-out."""

    def __init__(self, world: World, seconds: float) -> None:
        self.world, self.machine = world, world.loop.machine("asker")
        self.answer = asyncio.Event()
        self.task = world.loop.spawn(self.machine, self._ask(seconds))
        self.timed_out_at: float | None = None

    async def hold(self, *, at: float, seconds: float) -> None:
        """Hold its event loop from a moment on."""
        await asyncio.sleep(at - self.world.loop.real)
        self.machine.block(seconds)

    async def answer_at(self, moment: float) -> None:
        """Let the answer come at a moment; wait until the machine has seen it."""
        await asyncio.sleep(moment - self.world.loop.real)
        self.answer.set()
        await self.task

    async def _ask(self, seconds: float) -> None:
        try:
            async with timeout(seconds):
                await self.answer.wait()
        except TimeoutError:
            self.timed_out_at = self.world.loop.real


@in_virtual_time
async def test_silence_is_a_time_out(world: World) -> None:
    asker = Asker(world, 30)
    await asker.task
    assert asker.timed_out_at == pytest.approx(30, abs=0.1)


@in_virtual_time
async def test_an_answer_that_came_while_the_loop_was_held_counts(world: World) -> None:
    asker = Asker(world, 30)
    await asker.hold(at=1, seconds=40)
    await asker.answer_at(35)
    assert asker.timed_out_at is None


@in_virtual_time
async def test_an_answer_counts_that_came_while_the_last_turn_was_late(
    world: World,
) -> None:
    asker = Asker(world, 10)
    await asker.hold(at=9.9, seconds=5)
    await asker.answer_at(14)
    assert asker.timed_out_at is None


@in_virtual_time
async def test_an_answer_that_comes_soon_after_the_hold_counts(world: World) -> None:
    asker = Asker(world, 30)
    await asker.hold(at=1, seconds=40)
    await asker.answer_at(42)
    assert asker.timed_out_at is None


@in_virtual_time
async def test_silence_is_noticed_though_the_loop_is_held_again_and_again(
    world: World,
) -> None:
    def hold_again(machine: Machine) -> None:
        machine.block(6)
        world.loop.call_later(6.25, hold_again, machine)

    asker = Asker(world, 10)
    world.loop.call_later(0.1, hold_again, asker.machine)
    await asker.task
    assert asker.timed_out_at == pytest.approx(5 * 6.25, abs=6.5)


@in_virtual_time
async def test_errors_and_cancellation_pass_through(world: World) -> None:
    with pytest.raises(KeyError):
        async with timeout(5):
            raise KeyError
    asker = Asker(world, 30)
    await asyncio.sleep(1)
    asker.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker.task
    assert world.loop.real == 1


@in_virtual_time
async def test_a_countdown_that_is_restarted_counts_from_the_beginning(
    world: World,
) -> None:
    expired: list[float] = []
    countdown = Countdown(10, lambda: expired.append(world.loop.real))
    for _ in range(9):
        await asyncio.sleep(7)
        countdown.restart()
    await asyncio.sleep(60)
    assert expired == [pytest.approx(73, abs=0.1)]
    other = Countdown(1, lambda: expired.append(0))
    other.cancel()
    await asyncio.sleep(60)
    assert len(expired) == 1


@in_virtual_time
async def test_a_time_out_counts_no_pause(world: World) -> None:
    with pytest.raises(TimeoutError):
        async with timeout(10) as limit:
            await asyncio.sleep(9)
            limit.pause()
            await asyncio.sleep(100)
            limit.resume()
            await asyncio.sleep(100)
    assert world.loop.real == pytest.approx(110, abs=0.1)
