"""Test that apps of one state store know how many of them poll a stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.app_count import (
    ALIVE_SECONDS,
    COUNT_SECONDS,
    LEAST_SECONDS,
    AppCount,
)
from kinesumer.coordination.membership import DEAD_ROW_SECONDS
from kinesumer.errors import AccessDeniedError
from kinesumer.model.rows import Row
from kinesumer.wire import rows
from tests.support.world import World


class Polling:
    """One client of an app, which only counts the apps."""

    def __init__(
        self, world: World, app: str, *names: str, store: Any = None, **stream: Any
    ) -> None:
        self.streams: list[OpenStream] = []
        for name in names or ("orders",):
            world.kinesis.create_stream(name)
            self.streams.append(world.open(world.kinesis.source(name), **stream))
        self.clock = world.clock
        context = replace(world.context(store=store), app=app)
        self.task = world.loop.create_task(
            AppCount(context, lambda: self.streams).run()
        )

    @property
    def apps(self) -> list[int]:
        return [stream.apps for stream in self.streams]


def stored(world: World) -> list[str]:
    return [str(row["sk"]) for row in world.table.rows(rows.APPS)]


async def test_apps_learn_how_many_of_them_poll_each_stream(world: World) -> None:
    first = Polling(world, "a", "orders", "payments")
    await asyncio.sleep(1)
    assert first.apps == [1, 1]
    second = Polling(world, "b", "orders")
    await asyncio.sleep(1)
    assert second.apps == [2]
    await asyncio.sleep(2 * COUNT_SECONDS + LEAST_SECONDS)
    assert first.apps == [2, 1]


async def test_a_refused_read_makes_a_client_count_soon(world: World) -> None:
    first = Polling(world, "a")
    await asyncio.sleep(1)
    Polling(world, "b")
    await asyncio.sleep(1)
    first.streams[0].throttled_at = world.clock.now()
    await asyncio.sleep(LEAST_SECONDS)
    assert first.apps == [2]


async def test_clients_of_one_app_count_as_one(world: World) -> None:
    clients = [Polling(world, "a") for _ in range(3)]
    await asyncio.sleep(10 * COUNT_SECONDS)
    assert [client.apps for client in clients] == [[1]] * 3
    assert stored(world) == ["a"]


async def test_an_app_that_has_ended_no_longer_counts(world: World) -> None:
    first, second = Polling(world, "a"), Polling(world, "b")
    await asyncio.sleep(10 * COUNT_SECONDS)
    assert first.apps == [2]
    second.task.cancel()
    await asyncio.sleep(ALIVE_SECONDS + COUNT_SECONDS + LEAST_SECONDS)
    assert first.apps == [1]
    await asyncio.sleep(DEAD_ROW_SECONDS)
    assert stored(world) == ["a"]


class FanOut:
    """Makes a stream look as if it is read by fan-out only."""

    problem = ""


async def test_an_app_that_uses_fan_out_is_not_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fan_out = Polling(world, "a")
    monkeypatch.setattr(fan_out.streams[0].source, "fan_out", FanOut)
    polling = Polling(world, "b")
    await asyncio.sleep(3 * COUNT_SECONDS)
    assert polling.apps == [1]
    assert fan_out.apps == [2]  # if it had to poll
    assert stored(world) == ["b"]


class Denied:
    """A store that denies access to the rows of all apps."""

    async def query(self, *_: object, **__: object) -> list[Row]:
        raise AccessDeniedError("dynamodb:Query", "the table")


async def test_a_client_without_access_to_the_rows_goes_on_alone(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    client = Polling(world, "a", store=Denied())
    await asyncio.sleep(10 * COUNT_SECONDS)
    assert client.apps == [1]
    assert client.task.done()
    [warning] = caplog.messages
    assert "access denied: dynamodb:Query on the table" in warning
