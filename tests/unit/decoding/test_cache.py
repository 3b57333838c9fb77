"""Test that schemas are looked up once, with retries, and kept in a bounded cache."""

from __future__ import annotations

import asyncio
import errno
import os
from itertools import pairwise

import pytest

from kinesumer import ConfigurationError
from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.decoding import cache
from kinesumer.decoding.cache import REFUSED_SECONDS, RETRIES, Decode, SchemaCache
from kinesumer.errors import SchemaRegistryUnavailableError
from tests.support.world import World, in_virtual_time


class Registry:
    """Answers look-ups after the errors that it was given, and counts them."""

    def __init__(self, *errors: Exception) -> None:
        self.calls: list[int] = []
        self.times: list[float] = []
        self._errors = list(errors)
        self.cache = SchemaCache(
            self.fetch, now=lambda: asyncio.get_running_loop().time()
        )

    async def fetch(self, id: int) -> Decode:
        self.calls.append(id)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if self._errors:
            raise self._errors.pop(0)
        return lambda payload: (id, payload)

    @property
    def waits(self) -> list[float]:
        """The seconds between two look-ups."""
        return [after - before for before, after in pairwise(self.times)]


UNAVAILABLE = SchemaRegistryUnavailableError("schema 5 of the registry: status 503")


@in_virtual_time
async def test_concurrent_calls_for_one_id_share_one_look_up(_: World) -> None:
    registry = Registry()
    found = await asyncio.gather(*(registry.cache.find(5) for _ in range(50)))
    assert {decode(b"x") for decode in found} == {(5, b"x")}
    await registry.cache.find(5)
    assert registry.calls == [5]


@in_virtual_time
async def test_a_caller_that_is_cancelled_leaves_the_look_up_to_the_others(
    _: World,
) -> None:
    registry = Registry()
    first, second = (asyncio.ensure_future(registry.cache.find(5)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)(b"") == (5, b"")
    assert first.cancelled()
    assert registry.calls == [5]


@in_virtual_time
async def test_transient_errors_are_retried_with_growing_waits(_: World) -> None:
    registry = Registry(UNAVAILABLE, UNAVAILABLE)
    assert (await registry.cache.find(5))(b"") == (5, b"")
    assert registry.waits == pytest.approx([0.11, 0.22], rel=0.4)


@in_virtual_time
async def test_what_the_system_refuses_is_asked_for_again(_: World) -> None:
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    registry = Registry(full, MemoryError(), RuntimeError("can't start new thread"))
    assert (await registry.cache.find(5))(b"") == (5, b"")
    assert len(registry.waits) == 3


@in_virtual_time
async def test_a_registry_that_stays_away_is_reported_and_asked_again_later(
    _: World,
) -> None:
    registry = Registry(*[UNAVAILABLE] * 6)
    with pytest.raises(SchemaRegistryUnavailableError, match=r"schema 5.*6 attempts"):
        await registry.cache.find(5)
    assert len(registry.calls) == RETRIES.max_attempts
    assert callable(await registry.cache.find(5))


@in_virtual_time
async def test_missing_credentials_are_waited_for_and_logged_once_a_minute(
    _: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    missing = SchemaRegistryUnavailableError("schema 5: the keys have expired")
    missing.lacks_credentials = True
    registry = Registry(*[missing] * 50, UNAVAILABLE)
    assert (await registry.cache.find(5))(b"") == (5, b"")
    assert registry.waits[:50] == pytest.approx([CALL_BACKOFF.longest_seconds] * 50)
    assert registry.waits[50:] == pytest.approx([0.11], rel=0.4)
    assert [record.message for record in caplog.records] == [
        "the schema registry can't be asked, trying again: schema 5: the keys have "
        "expired"
    ] * 3


@in_virtual_time
async def test_an_unknown_id_is_refused_for_a_while_without_another_look_up(
    _: World,
) -> None:
    registry = Registry(ValueError("no schema 5"))
    for _again in range(3):
        with pytest.raises(ValueError, match="no schema 5"):
            await registry.cache.find(5)
    assert registry.calls == [5]
    await asyncio.sleep(REFUSED_SECONDS)
    assert callable(await registry.cache.find(5))


@in_virtual_time
async def test_an_error_of_the_configuration_is_not_kept(_: World) -> None:
    registry = Registry(ConfigurationError("no region"))
    with pytest.raises(ConfigurationError):
        await registry.cache.find(5)
    assert callable(await registry.cache.find(5))


@in_virtual_time
async def test_the_cache_drops_what_it_fetched_first(
    _: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "MAX_SCHEMAS", 2)
    registry = Registry()
    for id in range(1, 4):
        await registry.cache.find(id)
    assert [registry.cache.get(id) is not None for id in (1, 2, 3)] == [
        False,
        True,
        True,
    ]


def test_calls_may_come_from_several_event_loops() -> None:
    registry = Registry()
    for _ in range(2):
        assert asyncio.run(registry.cache.find(5))(b"") == (5, b"")
    assert asyncio.run(registry.cache.find(6))(b"") == (6, b"")
    assert registry.calls == [5, 6]
