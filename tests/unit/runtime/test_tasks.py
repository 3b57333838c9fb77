"""Test that time-outs survive a blocked event loop, and how calls are repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf

import pytest

from kinesumer.core.backoff import Backoff
from kinesumer.errors import (
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.runtime.tasks import Countdown, FailFastTaskGroup, Retries, timeout
from kinesumer.testing.simulation.machine import Machine
from tests.support.world import World


class Requester:
    """Waits for an answer with a time-out, on a machine of its own."""

    def __init__(self, world: World, seconds: float) -> None:
        self.world, self.machine = world, world.loop.machine("requester")
        self.answer = asyncio.Event()
        self.task = world.loop.spawn(self.machine, self._ask(seconds))
        self.timed_out_at: float | None = None

    async def block(self, *, at: float, seconds: float) -> None:
        """Block the requester's event loop from a time on."""
        await asyncio.sleep(at - self.world.loop.real)
        self.machine.block(seconds)

    async def answer_at(self, at: float) -> None:
        """Let the answer arrive at a time. Wait until the machine has received it."""
        await asyncio.sleep(at - self.world.loop.real)
        self.answer.set()
        await self.task

    async def _ask(self, seconds: float) -> None:
        try:
            async with timeout(seconds):
                await self.answer.wait()
        except TimeoutError:
            self.timed_out_at = self.world.loop.real


async def test_a_request_without_an_answer_times_out(world: World) -> None:
    requester = Requester(world, 30)
    await requester.task
    assert requester.timed_out_at == pytest.approx(30, abs=0.1)


@pytest.mark.parametrize(
    ("limit", "blocked_at", "seconds", "answered_at"),
    [
        (30, 1, 40, 35),  # while the loop is blocked
        (10, 9.9, 5, 14),  # during a block that began just before the time-out
        (30, 1, 40, 42),  # soon after the loop was blocked
    ],
)
async def test_an_answer_while_the_loop_is_blocked_or_soon_after_counts(
    world: World, limit: float, blocked_at: float, seconds: float, answered_at: float
) -> None:
    requester = Requester(world, limit)
    await requester.block(at=blocked_at, seconds=seconds)
    await requester.answer_at(answered_at)
    assert requester.timed_out_at is None


async def test_a_request_times_out_although_the_loop_blocks(world: World) -> None:
    def block_again(machine: Machine) -> None:
        machine.block(6)
        world.loop.call_later(6.25, block_again, machine)

    requester = Requester(world, 10)
    world.loop.call_later(0.1, block_again, requester.machine)
    await requester.task
    assert requester.timed_out_at == pytest.approx(5 * 6.25, abs=6.5)


async def test_errors_and_cancellation_pass_through(world: World) -> None:
    with pytest.raises(KeyError):
        async with timeout(5):
            raise KeyError
    requester = Requester(world, 30)
    await asyncio.sleep(1)
    requester.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await requester.task
    assert world.loop.real == 1


async def test_a_restarted_countdown_begins_again(world: World) -> None:
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


async def test_a_pause_does_not_count(world: World) -> None:
    with pytest.raises(TimeoutError):
        async with timeout(10) as limit:
            await asyncio.sleep(9)
            limit.pause()
            await asyncio.sleep(100)
            limit.resume()
            await asyncio.sleep(100)
    assert world.loop.real == pytest.approx(110, abs=0.1)


def failing(*errors: Exception) -> Callable[[], Awaitable[str]]:
    """Return a call that raises the errors, one each, and then succeeds."""
    left = list(errors)

    async def call() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return call


def without_credentials() -> SourceUnavailableError:
    error = SourceUnavailableError("no credentials")
    error.lacks_credentials = True
    return error


async def test_a_call_is_repeated_until_it_succeeds_and_each_failure_is_told(
    world: World,
) -> None:
    errors = SourceThrottledError("slow down"), SourceUnavailableError("503")
    told: list[Exception] = []
    assert await Retries().call(failing(*errors), on_failure=told.append) == "answer"
    assert told == list(errors)


async def test_the_last_error_is_raised_after_so_many_attempts(world: World) -> None:
    call = failing(*(SourceUnavailableError(f"{n}") for n in range(1, 9)))
    with pytest.raises(SourceUnavailableError, match="3"):
        await Retries(max_attempts=3).call(call)


async def test_the_last_error_is_raised_before_a_wait_that_takes_too_long(
    world: World,
) -> None:
    began = world.clock.now()
    retries = Retries(max_seconds=60.0, backoff=Backoff(5.0, 5.0))
    with pytest.raises(SourceUnavailableError):
        await retries.call(failing(*[SourceUnavailableError("503")] * 100))
    assert 55 <= world.clock.now() - began <= 60


@pytest.mark.parametrize("error", [TrimmedPositionError("old"), ValueError("no")])
async def test_other_errors_are_raised_at_once(world: World, error: Exception) -> None:
    told: list[Exception] = []
    with pytest.raises(type(error)):
        await Retries().call(failing(error), on_failure=told.append)
    assert told == []


@pytest.mark.parametrize("limits", [(3, inf), (inf, 9.0)])
async def test_attempts_and_time_without_credentials_do_not_count(
    world: World, limits: tuple[float, float]
) -> None:
    errors = [without_credentials() for _ in range(20)]
    errors.insert(10, SourceUnavailableError("503"))
    retries = Retries(max_attempts=limits[0], max_seconds=limits[1])
    with pytest.raises(SourceUnavailableError, match="no credentials"):
        await retries.call(failing(*errors))
    retries = retries._replace(waits_for_credentials=True)
    assert await retries.call(failing(*errors)) == "answer"


async def test_a_group_that_was_cancelled_has_ended() -> None:
    group = FailFastTaskGroup()

    async def run() -> None:
        async with group:
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    await asyncio.sleep(0)
    assert not group.is_ending
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert group.is_ending
