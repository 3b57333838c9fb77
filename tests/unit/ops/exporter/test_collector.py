"""Test that the exporter reads apps at its own interval, and logs an outage once."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import AccessDeniedError, StoreUnavailableError
from kinesumer.ops.exporter.collector import AppReader
from tests.support.world import APP, World, in_virtual_time

NO_CLIENTS: ClientFactory = SimpleNamespace()  # type: ignore[assignment]


class Failing:
    """A state store that raises an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def get(self, *_: Any, **__: Any) -> None:
        raise self._error

    query = get


def reading(world: World) -> AppReader:
    return AppReader(APP, world.clock, lag=False)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records]


@in_virtual_time
async def test_shards_without_an_owner_age_from_the_reading_that_saw_them(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 2)
    client = world.client("c1")
    await world.until(lambda: len(client.held) == 2)
    await client.stop()
    one = reading(world)
    await one.read(NO_CLIENTS, world.table)
    await asyncio.sleep(20.0)
    await one.read(NO_CLIENTS, world.table)
    assert one.metrics.reading is not None
    observation = one.metrics.reading.observation
    ages = [observation.at - since for since in observation.unconsumed.values()]
    assert ages == [pytest.approx(20.0)] * 2


@in_virtual_time
async def test_an_error_is_logged_when_it_begins_and_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    one = reading(world)
    broken: Any = Failing(StoreUnavailableError("no answer"))
    for store in (world.table, broken, broken, broken, world.table, world.table):
        await one.read(NO_CLIENTS, store)
    assert said(caplog) == [
        f"app {APP} couldn't be read: no answer",
        f"app {APP} can be read again",
    ]
    assert (one.metrics.reads, one.metrics.errors) == (6, 3)


@in_virtual_time
async def test_a_permanent_error_ends_the_start_and_not_a_running_exporter(
    world: World,
) -> None:
    denied: Any = Failing(AccessDeniedError("dynamodb:Query", "table t"))
    one = reading(world)
    with pytest.raises(AccessDeniedError):
        await one.read(NO_CLIENTS, denied)
    await one.read(NO_CLIENTS, denied)
    assert one.metrics.reading is None
