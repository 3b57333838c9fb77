"""Test that calls are retried for the time of an outage, and run on one loop."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import SourceUnavailableError
from kinesumer.spark.runtime.event_loop import (
    MAX_OUTAGE_SECONDS,
    PLAN_RETRIES,
    event_loop_thread,
    for_each,
)
from tests.support.spark_query import World, simulated


@pytest.mark.parametrize("lacks_credentials", [False, True])
@simulated()
async def test_a_call_is_retried_for_two_minutes_or_until_there_are_credentials(
    world: World, lacks_credentials: bool
) -> None:
    over = world.clock.now() + 3 * MAX_OUTAGE_SECONDS

    async def call() -> str:
        if world.clock.now() < over:
            error = SourceUnavailableError("no answer")
            error.lacks_credentials = lacks_credentials
            raise error
        return "answer"

    if lacks_credentials:
        assert await PLAN_RETRIES.call(call) == "answer"
        return
    with pytest.raises(SourceUnavailableError):
        await PLAN_RETRIES.call(call)
    left = over - world.clock.now()
    assert left == pytest.approx(2 * MAX_OUTAGE_SECONDS, abs=10)


@simulated()
async def test_work_on_many_items_stops_at_the_first_error(world: World) -> None:
    done = []

    async def work(item: int) -> None:
        await asyncio.sleep(item)
        if item == 3:
            raise SourceUnavailableError("three")
        done.append(item)

    with pytest.raises(SourceUnavailableError, match="three"):
        await for_each(range(1_000), work)
    assert done == [0, 1, 2]


def test_a_process_has_one_loop() -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    assert event_loop_thread() is event_loop_thread()
    assert event_loop_thread().run(loop()) is event_loop_thread().loop
