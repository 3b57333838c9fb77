"""Test how often and how long a failing call is repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf

import pytest

from kinesumer.core.backoff import Backoff
from kinesumer.errors import (
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.runtime.retries import Retries
from tests.support.world import World, in_virtual_time


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


@in_virtual_time
async def test_a_call_is_repeated_until_it_succeeds_and_each_failure_is_told(
    _: World,
) -> None:
    errors = SourceThrottledError("slow down"), SourceUnavailableError("503")
    told: list[Exception] = []
    assert await Retries().call(failing(*errors), on_failure=told.append) == "answer"
    assert told == list(errors)


@in_virtual_time
async def test_the_last_error_is_raised_after_so_many_attempts(_: World) -> None:
    call = failing(*(SourceUnavailableError(f"{n}") for n in range(1, 9)))
    with pytest.raises(SourceUnavailableError, match="3"):
        await Retries(max_attempts=3).call(call)


@in_virtual_time
async def test_the_last_error_is_raised_before_a_wait_that_takes_too_long(
    world: World,
) -> None:
    began = world.clock.now()
    retries = Retries(max_seconds=60.0, backoff=Backoff(5.0, 5.0))
    with pytest.raises(SourceUnavailableError):
        await retries.call(failing(*[SourceUnavailableError("503")] * 100))
    assert 55 <= world.clock.now() - began <= 60


@pytest.mark.parametrize("error", [TrimmedPositionError("old"), ValueError("no")])
@in_virtual_time
async def test_other_errors_are_raised_at_once(_: World, error: Exception) -> None:
    told: list[Exception] = []
    with pytest.raises(type(error)):
        await Retries().call(failing(error), on_failure=told.append)
    assert told == []


@pytest.mark.parametrize("limits", [(3, inf), (inf, 9.0)])
@in_virtual_time
async def test_attempts_and_time_without_credentials_do_not_count(
    _: World, limits: tuple[float, float]
) -> None:
    errors = [without_credentials() for _ in range(20)]
    errors.insert(10, SourceUnavailableError("503"))
    retries = Retries(max_attempts=limits[0], max_seconds=limits[1])
    with pytest.raises(SourceUnavailableError, match="no credentials"):
        await retries.call(failing(*errors))
    retries = retries._replace(waits_for_credentials=True)
    assert await retries.call(failing(*errors)) == "answer"
