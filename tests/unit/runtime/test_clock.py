"""Test what the clocks of the machine, of the event loop and of Kinesis tell."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from kinesumer.runtime.clock import (
    DRIFT,
    LoopClock,
    ServiceTime,
    SystemClock,
    yield_seconds,
)
from tests.support.clock import StillClock
from tests.support.world import World


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="not on this system")
def test_time_in_suspend_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {time.CLOCK_BOOTTIME: 600.0}
    monkeypatch.setattr(time, "clock_gettime", times.__getitem__)
    assert SystemClock().now() == 600.0


def test_without_boottime_the_monotonic_clock_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(time, "monotonic", lambda: 60.0)
    assert SystemClock().now() == 60.0


def test_the_loop_gets_a_twentieth_of_a_long_hold_at_most_a_quarter_second() -> None:
    seconds = [yield_seconds(held) for held in (0.0, 0.25, 0.26, 1, 4, 5, 3600)]
    assert seconds == pytest.approx([0.0, 0.0, 0.013, 0.05, 0.2, 0.25, 0.25])


# --- the event loop ---


class Loop:
    """An event loop with a client's clock, which the test reads from another thread."""

    def __init__(self, world: World) -> None:
        self.machine = world.loop.machine("c1")
        self.clock = LoopClock(world.clock)
        world.loop.spawn(self.machine, self.clock.run())


async def test_free_time_counts_even_before_the_clock_runs(world: World) -> None:
    running, other = Loop(world).clock, LoopClock(world.clock)
    await asyncio.sleep(100.5)
    for clock in (running, other):
        assert clock.now() == pytest.approx(100.5, abs=0.01)
        assert clock.blocked_since() is None


async def test_a_stretch_of_40_seconds_counts_for_two_at_most(world: World) -> None:
    loop = Loop(world)
    await asyncio.sleep(10.5)
    began = loop.clock.now()
    loop.machine.block(40)
    await asyncio.sleep(30)
    assert loop.clock.now() - began <= 2
    assert loop.clock.to_client_time(began) >= world.clock.now() - 2
    await asyncio.sleep(20)  # the loop was free for ten of these seconds
    assert 10 <= loop.clock.now() - began <= 12.01


async def test_a_block_lasts_from_when_it_was_first_noticed(world: World) -> None:
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


def test_an_answer_bounds_the_clock_by_its_second_and_the_time_it_took() -> None:
    clock = StillClock(5.0)
    service = ServiceTime(clock)
    assert (service.earliest(), service.latest()) == (-math.inf, math.inf)
    clock.seconds = 10.5
    service.observe_date(1000.0, asked_at=10.0)
    assert (service.earliest(), service.latest()) == (1000.0, 1001.5)


@pytest.fixture
def clock() -> StillClock:
    return StillClock(10.0)


@pytest.fixture
def service(clock: StillClock) -> ServiceTime:
    """Return the bounds after an answer whose Date is 1000."""
    service = ServiceTime(clock)
    service.observe_date(1000.0, asked_at=10.0)
    return service


def test_bounds_widen_as_clocks_drift(clock: StillClock, service: ServiceTime) -> None:
    clock.seconds = 1010.0
    assert service.earliest() == 2000.0 - DRIFT * 1000
    assert service.latest() == 2001.0 + DRIFT * 1000
    assert service.earliest(10.0) == 1000.0


def test_a_record_that_arrived_shows_that_the_clock_is_not_behind_it(
    service: ServiceTime,
) -> None:
    service.observe_arrival(1000.7)
    assert service.earliest() == 1000.7
    service.observe_arrival(2000.0)
    assert service.earliest() == 1000.7


def test_a_clock_that_was_set_is_known_by_the_newest_answer_only(
    clock: StillClock, service: ServiceTime
) -> None:
    clock.seconds = 11.0
    service.observe_date(500.0, asked_at=11.0)
    assert (service.earliest(), service.latest()) == (500.0, 501.0)
