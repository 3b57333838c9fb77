"""Test that handlers get decoded records, and what happens to the others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer import Batch, Middleware, Record
from kinesumer.errors import (
    ConfigurationError,
    DecodeError,
    HandlerFailedError,
    SourceUnavailableError,
)
from tests.support.handler_client import BURY, Runner, committed
from tests.support.otel import Sdk, Traced
from tests.support.world import World


class Log:
    """Handlers that note the values that they get, call by call."""

    def __init__(self) -> None:
        self.calls: list[list[Any]] = []

    @property
    def values(self) -> list[Any]:
        return [value for call in self.calls for value in call]

    async def record(self, record: Record[Any]) -> None:
        self.calls.append([record.value])

    async def batch(self, batch: Batch[Any]) -> None:
        self.calls.append([record.value for record in batch.records])


def number(record: Record) -> int:
    return int(record.data)


class SlowNumber:
    """An async decoder. It notes the order of its calls."""

    def __init__(self) -> None:
        self.began: list[bytes] = []

    async def __call__(self, record: Record) -> int:
        self.began.append(record.data)
        await asyncio.sleep(0.1)
        return int(record.data)


@pytest.mark.parametrize("decode", [int, number, SlowNumber()])
@pytest.mark.parametrize("name", ["record", "batch"])
async def test_handlers_get_decoded_records_in_order(
    world: World, name: str, decode: Any
) -> None:
    log, texts = Log(), [str(place) for place in range(250)]
    world.put(*texts)
    runner = Runner(world, getattr(log, name), decode=decode)
    await world.until(lambda: len(log.values) == 250)
    assert log.values == list(range(250))
    await runner.leave()
    assert committed(world) == 250


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_record_that_cannot_be_decoded_becomes_a_dead_letter_at_once(
    world: World, concurrency: int
) -> None:
    log = Log()
    world.put("1", "x", "3")
    runner = Runner(world, log.record, decode=int, concurrency=concurrency, **BURY)
    await world.until(lambda: len(log.values) == 2)
    assert log.values == [1, 3]
    [letter] = runner.letters.stored
    assert (letter.data, letter.attempts) == (b"x", 1)
    assert letter.error.startswith("DecodeError: msgspec.DecodeError: JSON")
    assert "msgspec.DecodeError: JSON is malformed" in letter.traceback
    await runner.leave()
    assert committed(world) == 3


async def test_a_batch_is_handled_without_the_records_that_cannot_be_decoded(
    world: World,
) -> None:
    log = Log()
    world.put("1", "x", "3", "y", "z", "6")
    runner = Runner(world, log.batch, decode=int, **BURY)
    await world.until(lambda: log.calls)
    assert log.calls == [[1, 3, 6]]
    assert runner.letters.texts == ["x", "y", "z"]
    await runner.leave()
    assert committed(world) == 6


async def test_a_batch_whose_records_all_fail_is_not_handled(world: World) -> None:
    log = Log()
    world.put("x", "y")
    runner = Runner(world, log.batch, decode=int, **BURY)
    await world.until(lambda: len(runner.letters.stored) == 2)
    await runner.leave()
    assert (log.calls, committed(world)) == ([], 2)


@pytest.mark.parametrize("name", ["record", "batch"])
async def test_without_dead_letters_the_client_stops_at_the_record(
    world: World, name: str
) -> None:
    log = Log()
    world.put("1", "2", "x", "4")
    runner = Runner(world, getattr(log, name), decode=int)
    with pytest.raises(HandlerFailedError, match="cannot be decoded") as failed:
        await runner.task
    assert isinstance(failed.value.__cause__, DecodeError)
    assert log.values == [1, 2]
    await runner.close()
    assert committed(world) == 2


@pytest.mark.parametrize("name", ["record", "batch"])
async def test_a_shard_can_stop_at_the_record(world: World, name: str) -> None:
    log = Log()
    world.put("1", "x", "3")
    runner = Runner(world, getattr(log, name), decode=int, on_failure="stop-shard")
    await world.until(lambda: log.values)
    await asyncio.sleep(30)
    assert log.values == [1]
    await runner.leave()
    assert committed(world) == 1


async def test_a_repeated_call_gets_values_that_the_failed_one_has_not_changed(
    world: World,
) -> None:
    seen: list[int] = []

    async def handle(record: Record[dict[str, int]]) -> None:
        seen.append(record.value.pop("id"))
        if len(seen) == 1:
            raise ValueError

    world.put('{"id": 7}')
    runner = Runner(world, handle, decode=dict[str, int])
    await world.until(lambda: len(seen) == 2)
    await runner.leave()
    assert seen == [7, 7]


async def test_an_error_of_json_in_the_handler_is_not_retried(world: World) -> None:
    calls: list[bytes] = []

    async def handle(record: Record) -> None:
        calls.append(record.data)
        record.json(int)

    world.put("x")
    runner = Runner(world, handle, **BURY)
    await world.until(lambda: runner.letters.stored)
    await runner.leave()
    assert calls == [b"x"]


@pytest.mark.parametrize("name", ["record", "batch"])
async def test_a_fault_that_is_not_the_records_ends_run(
    world: World, name: str
) -> None:
    def decode(record: Record) -> int:
        raise SourceUnavailableError("the registry is away")

    world.put("1")
    runner = Runner(world, getattr(Log(), name), decode=decode, **BURY)
    with pytest.raises(SourceUnavailableError, match="the registry is away"):
        await runner.task
    assert runner.letters.stored == []
    await runner.close()
    assert committed(world) == 0


async def test_a_cancellation_within_the_decoder_is_an_error_of_the_record(
    world: World,
) -> None:
    async def decode(record: Record) -> int:
        if record.data == b"2":
            raise asyncio.CancelledError
        return int(record.data)

    log = Log()
    world.put("1", "2", "3")
    runner = Runner(world, log.record, decode=decode, **BURY)
    await world.until(lambda: 3 in log.values)
    assert runner.letters.texts == ["2"]
    await runner.leave()


async def test_a_shard_that_is_given_up_during_decoding_is_not_handled(
    world: World,
) -> None:
    log, decode = Log(), SlowNumber()
    world.put("1")
    runner = Runner(world, log.batch, decode=decode)
    await world.until(lambda: decode.began)
    runner.owned.revoke()
    await asyncio.sleep(5)
    assert log.calls == []
    await runner.close()


async def test_hooks_get_decoded_records(world: World) -> None:
    seen: list[int] = []

    class Hooks(Middleware):
        def before(self, item: Any) -> None:
            seen.append(item.value)

    log = Log()
    world.put("7")
    runner = Runner(world, log.record, decode=int, middleware=[Hooks()])
    await world.until(lambda: log.calls)
    await runner.leave()
    assert seen == [7]


async def test_records_that_cannot_be_decoded_are_counted(world: World) -> None:
    world.put("1", "x", "3", "y")
    runner = Traced(world, Sdk(), Log().batch, decode=int, **BURY)
    await world.until(lambda: len(runner.letters.stored) == 2)
    await runner.leave()
    points = runner.sdk.collect()
    assert points["kinesumer.decode_failures"][0].value == 2
    assert points["messaging.client.consumed.messages"][0].value == 4
    assert points["kinesumer.data_bytes_processed"][0].value == 4


async def test_a_decoder_is_checked_at_the_call(world: World) -> None:
    runner = Runner(world, Log().record, decode=Log)
    with pytest.raises(ConfigurationError, match=r"^decode=.* is not a type"):
        await runner.task
