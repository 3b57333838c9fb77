"""Test that headers of registries are read, and schemas looked up once and cached."""

from __future__ import annotations

import asyncio
import errno
import os
import zlib
from collections.abc import Callable
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer import ConfigurationError
from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.decoding import registries
from kinesumer.decoding.confluent import parse_confluent, skip_confluent_indexes
from kinesumer.decoding.glue import parse_glue, skip_glue_index
from kinesumer.decoding.registries import REFUSED_SECONDS, RETRIES, Decode, SchemaCache
from kinesumer.errors import SchemaRegistryUnavailableError
from tests.support.world import World


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


async def test_concurrent_calls_for_one_id_share_one_look_up(world: World) -> None:
    registry = Registry()
    found = await asyncio.gather(*(registry.cache.find(5) for _ in range(50)))
    assert {decode(b"x") for decode in found} == {(5, b"x")}
    await registry.cache.find(5)
    assert registry.calls == [5]


async def test_a_caller_that_is_cancelled_leaves_the_look_up_to_the_others(
    world: World,
) -> None:
    registry = Registry()
    first, second = (asyncio.ensure_future(registry.cache.find(5)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second)(b"") == (5, b"")
    assert first.cancelled()
    assert registry.calls == [5]


async def test_transient_errors_are_retried_with_growing_waits(world: World) -> None:
    registry = Registry(UNAVAILABLE, UNAVAILABLE)
    assert (await registry.cache.find(5))(b"") == (5, b"")
    assert registry.waits == pytest.approx([0.11, 0.22], rel=0.4)


async def test_what_the_system_refuses_is_asked_for_again(world: World) -> None:
    full = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    registry = Registry(full, MemoryError(), RuntimeError("can't start new thread"))
    assert (await registry.cache.find(5))(b"") == (5, b"")
    assert len(registry.waits) == 3


async def test_a_registry_that_stays_away_is_reported_and_asked_again_later(
    world: World,
) -> None:
    registry = Registry(*[UNAVAILABLE] * 6)
    with pytest.raises(SchemaRegistryUnavailableError, match=r"schema 5.*6 attempts"):
        await registry.cache.find(5)
    assert len(registry.calls) == RETRIES.max_attempts
    assert callable(await registry.cache.find(5))


async def test_missing_credentials_are_waited_for_and_logged_once_a_minute(
    world: World,
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


async def test_an_unknown_id_is_refused_for_a_while_without_another_look_up(
    world: World,
) -> None:
    registry = Registry(ValueError("no schema 5"))
    for _again in range(3):
        with pytest.raises(ValueError, match="no schema 5"):
            await registry.cache.find(5)
    assert registry.calls == [5]
    await asyncio.sleep(REFUSED_SECONDS)
    assert callable(await registry.cache.find(5))


async def test_an_error_of_the_configuration_is_not_kept(world: World) -> None:
    registry = Registry(ConfigurationError("no region"))
    with pytest.raises(ConfigurationError):
        await registry.cache.find(5)
    assert callable(await registry.cache.find(5))


async def test_the_cache_drops_what_it_fetched_first(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registries, "MAX_SCHEMAS", 2)
    registry = Registry()
    for id in range(1, 4):
        await registry.cache.find(id)
    kept = [registry.cache.get(id) is not None for id in (1, 2, 3)]
    assert kept == [False, True, True]


def test_calls_may_come_from_several_event_loops() -> None:
    registry = Registry()
    for _ in range(2):
        assert asyncio.run(registry.cache.find(5))(b"") == (5, b"")
    assert asyncio.run(registry.cache.find(6))(b"") == (6, b"")
    assert registry.calls == [5, 6]


ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
LIMIT_BYTES = 1000


def framed(version: int, compression: int, payload: bytes) -> bytes:
    return bytes([version, compression]) + ID.bytes + payload


def test_glues_header_gives_the_id_and_the_decompressed_data() -> None:
    assert parse_glue(framed(3, 0, b"plain"), 1) == (ID, b"plain")
    packed = zlib.compress(bytes(LIMIT_BYTES))
    assert parse_glue(framed(3, 5, packed), LIMIT_BYTES) == (ID, bytes(LIMIT_BYTES))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too short"),
        (framed(3, 0, b"")[:-1], "17 bytes are too short"),
        (framed(2, 0, b"x"), "the first byte is 2"),
        (framed(3, 1, b"x"), "the compression byte is 1"),
        (framed(3, 5, b"no zlib"), "corrupt"),
        (framed(3, 5, zlib.compress(b"data" * 50)[:-3]), "truncated"),
        (framed(3, 5, zlib.compress(b"data") + b"!"), "1 bytes follow"),
        (framed(3, 5, zlib.compress(bytes(1 << 24))), "more than the limit of 1,000"),
    ],
)
def test_a_hostile_header_of_glue_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_glue(data, LIMIT_BYTES)


def test_confluents_header_gives_the_id_and_the_data() -> None:
    assert parse_confluent(b"\0\0\0\1\2data") == (258, b"data")
    for data, reason in ((b"\0\0\0\1", "too short"), (b"\1\0\0\0\1", "byte is 1")):
        with pytest.raises(ValueError, match=reason):
            parse_confluent(data)


def test_message_indexes_before_a_protobuf_message_are_skipped() -> None:
    assert skip_glue_index(b"\x00data") == b"data"
    assert skip_glue_index(b"\x80\x01data") == b"data"
    assert skip_confluent_indexes(b"\x00data") == b"data"  # stands for [0]
    assert skip_confluent_indexes(b"\x04\x02\x00data") == b"data"  # [1, 0]
    for hostile in (b"", b"\x80", b"\x01", b"\xff\xff\xff\xff\x0f", b"\2", b"\x80" * 9):
        with pytest.raises(ValueError, match="index"):
            skip_confluent_indexes(hostile)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_with_a_reason(data: bytes) -> None:
    compressed = b"\3\5" + data
    calls: list[Callable[[], object]] = [
        lambda: parse_confluent(data),
        lambda: parse_glue(compressed, LIMIT_BYTES),
        lambda: skip_confluent_indexes(data),
        lambda: skip_glue_index(data),
    ]
    for call in calls:
        try:
            call()
        except ValueError as error:
            assert str(error)
