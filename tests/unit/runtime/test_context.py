"""Test that calls are retried while a service is unavailable."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from kinesumer.errors import (
    AccessDeniedError,
    KinesumerError,
    SourceUnavailableError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write
from tests.support.faulty import FaultyStore
from tests.support.world import World


class Service:
    """A service that raises an error at its first calls, and then answers."""

    def __init__(self, world: World, failures: int, error: KinesumerError) -> None:
        self.world = world
        self.failures, self.error = failures, error
        self.asked: list[float] = []

    async def ask(self) -> str:
        self.asked.append(self.world.clock.now())
        if len(self.asked) <= self.failures:
            raise self.error
        return "answer"


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailableError("timed out"),
        StoreThrottledError("slow down"),
        SourceUnavailableError("timed out"),
    ],
)
async def test_a_temporary_failure_is_retried_ever_less_often(
    world: World, error: KinesumerError
) -> None:
    service = Service(world, 20, error)
    assert await world.context().until_available(service.ask) == "answer"
    gaps = [after - before for before, after in pairwise(service.asked)]
    assert len(gaps) == 20
    assert 0.05 <= gaps[0] <= 0.15
    assert 1.0 <= min(gaps[6:])
    assert max(gaps) <= 3.0
    assert len({*gaps}) == 20


async def test_after_retry_seconds_the_last_error_is_raised(world: World) -> None:
    context = replace(world.context(), retry_seconds=30.0)
    service = Service(world, 1_000, StoreUnavailableError("timed out"))
    with pytest.raises(StoreUnavailableError, match="timed out"):
        await context.until_available(service.ask)
    assert 30.0 <= world.clock.now() - service.asked[0] <= 33.0


async def test_a_permanent_failure_is_raised_at_once(world: World) -> None:
    service = Service(world, 1, AccessDeniedError("kinesis:ListShards", "arn"))
    with pytest.raises(AccessDeniedError):
        await world.context().until_available(service.ask)
    assert len(service.asked) == 1


async def test_a_write_is_repeated_until_it_is_answered(world: World) -> None:
    store = FaultyStore(world.table)
    context = world.context(store=store)
    write = Write(Key("p", "s"), Compare("pk", "absent"), {"value": 1})
    store.spoil("lost", "value")
    assert (await context.write(write)).applied
    assert (await context.read(write.key) or {})["value"] == 1
    other = Write(Key("p", "t"), Compare("pk", "absent"), {"value": 2})
    store.spoil("unanswered", "value")
    written = await context.write(other)
    assert not written.applied
    assert (written.row or {})["value"] == 2


async def test_contexts_of_one_client_share_the_clock_of_its_loop(world: World) -> None:
    context = world.context()
    assert replace(context, client_id="c2").loop_clock is context.loop_clock
    assert world.context().loop_clock is not context.loop_clock
