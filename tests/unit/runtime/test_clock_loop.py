"""The event loop's clock stands still while the loop is held."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.runtime.clock import LoopClock
from tests.support.world import World, in_virtual_time


class Loop:
    """A client's event loop with its clock; the test looks from another thread."""

    def __init__(self, world: World) -> None:
        self.machine = world.loop.machine("c1")
        self.clock = LoopClock(world.clock)
        world.loop.spawn(self.machine, self.clock.run())


@in_virtual_time
async def test_free_time_counts(world: World) -> None:
    loop = Loop(world)
    await asyncio.sleep(100.5)
    assert loop.clock.now() == pytest.approx(100.5, abs=0.01)
    assert loop.clock.blocked_since() is None


@in_virtual_time
async def test_it_counts_before_it_runs(world: World) -> None:
    clock = LoopClock(world.clock)
    await asyncio.sleep(100)
    assert clock.now() == pytest.approx(100)
    assert clock.blocked_since() is None


@in_virtual_time
async def test_a_stretch_of_40_seconds_counts_for_two_at_most(world: World) -> None:
    loop = Loop(world)
    await asyncio.sleep(10.5)
    began = loop.clock.now()
    loop.machine.block(40)
    await asyncio.sleep(30)
    assert loop.clock.now() - began <= 2
    assert loop.clock.to_client_time(began) >= world.clock.now() - 2
    await asyncio.sleep(20)  # ten of them free
    assert 10 <= loop.clock.now() - began <= 12.01


@in_virtual_time
async def test_a_hold_lasts_from_when_it_was_seen_first(world: World) -> None:
    loop = Loop(world)
    await asyncio.sleep(10.5)
    loop.machine.block(40)
    await asyncio.sleep(1)
    assert loop.clock.blocked_since() is None
    await asyncio.sleep(9)
    assert loop.clock.blocked_since() == pytest.approx(20.5)
    await asyncio.sleep(20)
    assert loop.clock.blocked_since() == pytest.approx(20.5)
    await asyncio.sleep(11)
    assert loop.clock.blocked_since() is None
