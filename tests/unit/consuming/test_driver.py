"""Test the delivery of decoded records, and of records that cannot be decoded."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kinesumer.errors import DecodeError, StoreUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from tests.support.delivery import Desk, deliver
from tests.support.world import World, hold


class Decoding:
    """A decoder to numbers. It fails at some of them, and may take time."""

    def __init__(self, *bad: int, seconds: float = 0.0) -> None:
        self.bad = set(bad)
        self.seconds = seconds
        self.calls: list[int] = []

    def __call__(self, record: Record) -> Any:
        number = int(record.data.split()[1])
        self.calls.append(number)
        if self.seconds:
            return self._later(number)
        return self._value(number)

    async def _later(self, number: int) -> int:
        await asyncio.sleep(self.seconds)
        return self._value(number)

    def _value(self, number: int) -> int:
        if number in self.bad:
            raise LookupError(number)
        return number


async def values(desk: Desk, count: int) -> list[int]:
    return [(await anext(desk.records)).value for _ in range(count)]


@pytest.mark.parametrize("seconds", [0.0, 0.1])
@pytest.mark.parametrize("auto", [True, False])
async def test_records_and_batches_have_decoded_values(
    world: World, seconds: float, auto: bool
) -> None:
    decode = Decoding(seconds=seconds)
    desk, owned = deliver(world, 1, 2, auto=auto, decode=decode)
    assert await values(desk, 2) == [1, 2]
    desk.put(owned, 3, 4)
    batch = await anext(desk.records.batches())
    assert [record.value for record in batch.records] == [3, 4]
    assert batch.stream == "orders"
    assert desk.done(owned) == (Position("2") if auto else None)


async def test_values_are_decoded_only_when_they_are_asked_for(world: World) -> None:
    decode = Decoding()
    desk, _ = deliver(world, 1, 2, 3, decode=decode)
    assert await values(desk, 2) == [1, 2]
    assert decode.calls == [1, 2]


async def test_a_raised_error_stands_for_its_record(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3, decode=Decoding(2))
    assert await values(desk, 1) == [1]
    with pytest.raises(DecodeError, match="record 2 of stream orders, shardId-") as bad:
        await anext(desk.records)
    assert isinstance(bad.value.__cause__, LookupError)
    assert desk.done(owned) == Position("1")  # a restart delivers record 2 again
    assert await values(desk, 1) == [3]
    assert desk.done(owned) == Position("2")


async def test_with_manual_acks_a_raised_record_is_acked_by_hand(world: World) -> None:
    desk, owned = deliver(world, 1, 2, 3, auto=False, decode=Decoding(2))
    owned.ack(await anext(desk.records))
    with pytest.raises(DecodeError) as bad:
        await anext(desk.records)
    owned.ack(await anext(desk.records))
    assert desk.done(owned) == Position("1")
    owned.ack(bad.value.record)
    assert desk.done(owned) == Position("3")


@pytest.mark.parametrize("auto", [True, False])
async def test_a_batch_ends_before_a_record_whose_error_is_raised(
    world: World, auto: bool
) -> None:
    desk, owned = deliver(world, 1, 2, 3, 4, 5, auto=auto, decode=Decoding(3, 4))
    batches, seen = desk.records.batches(), []
    for _ in range(4):
        try:
            batch = await anext(batches)
        except DecodeError as error:
            seen.append([f"bad {error.record.sequence_number}"])
        else:
            seen.append([record.sequence_number for record in batch.records])
    assert seen == [["1", "2"], ["bad 3"], ["bad 4"], ["5"]]
    assert desk.done(owned) == (Position("4") if auto else None)


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("whole", [True, False])
async def test_skipped_records_are_done(world: World, auto: bool, whole: bool) -> None:
    desk, owned = deliver(
        world, 1, 2, 3, auto=auto, decode=Decoding(1, 3), on_decode_error="skip"
    )
    if whole:
        batch = await anext(desk.records.batches())
        records = batch.records
    else:
        records = [await anext(desk.records)]
    assert [record.value for record in records] == [2]
    if not auto:
        owned.ack(Record("2", b""))
    assert await desk.nothing_for(1)
    assert desk.done(owned) == Position("3")
    assert desk.telemetry.counted["decode_failures"] == 2
    assert owned.outcomes.skipped == 2
    assert owned.outcomes.last == ("DecodeError", "3")


async def test_skipped_records_are_logged_once_a_minute(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bad = range(1, 101)
    desk, owned = deliver(world, *bad, decode=Decoding(*bad), on_decode_error="skip")
    assert await desk.nothing_for(1)
    [line] = caplog.records
    assert line.levelno == logging.WARNING
    assert line.message.startswith("skipped: record 1 of stream orders, shardId-")
    assert "LookupError: 1" in line.message
    fields = vars(line)
    assert (fields["stream"], fields["sequence_number"]) == ("orders", "1")
    await asyncio.sleep(60)
    desk.put(owned, *bad)
    assert await desk.nothing_for(1)
    assert len(caplog.messages) == 2


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("auto", [True, False])
async def test_a_function_gets_the_record_and_the_error(
    world: World, auto: bool, is_async: bool
) -> None:
    seen: list[tuple[str, str]] = []

    def put_aside(record: Record, error: DecodeError) -> None:
        seen.append((record.sequence_number, type(error.__cause__).__name__))

    async def put_aside_later(record: Record, error: DecodeError) -> None:
        await asyncio.sleep(1)
        put_aside(record, error)

    desk, owned = deliver(
        world,
        1,
        2,
        auto=auto,
        decode=Decoding(1),
        on_decode_error=put_aside_later if is_async else put_aside,
    )
    assert await values(desk, 1) == [2]
    assert seen == [("1", "LookupError")]
    assert desk.done(owned) == Position("1")


async def test_an_error_of_the_function_is_raised_and_the_record_comes_again(
    world: World,
) -> None:
    errors: list[Exception] = [RuntimeError("the table is full")]

    def put_aside(record: Record, error: DecodeError) -> None:
        if errors:
            raise errors.pop()

    desk, owned = deliver(world, 1, 2, decode=Decoding(1), on_decode_error=put_aside)
    with pytest.raises(RuntimeError, match="the table is full"):
        await anext(desk.records)
    assert desk.done(owned) is None
    assert await values(desk, 1) == [2]
    assert desk.done(owned) == Position("1")


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("auto", [True, False])
async def test_a_decoder_that_is_cut_short_loses_nothing(
    world: World, auto: bool, whole: bool
) -> None:
    decode = Decoding(seconds=10)
    desk, owned = deliver(world, 1, 2, auto=auto, decode=decode)
    asked: Any = desk.records.batches() if whole else desk.records
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(asked), 5)
    assert desk.done(owned) is None
    assert owned.is_idle  # a release does not wait for a record that nobody has
    decode.seconds = 0
    batch = await anext(desk.records.batches())
    assert [record.value for record in batch.records] == [1, 2]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_fault_that_is_not_the_records_is_raised_and_decoding_is_repeated(
    world: World, whole: bool
) -> None:
    faults: list[Exception] = [StoreUnavailableError("the registry is away")]

    def decode(record: Record) -> bytes:
        if faults:
            raise faults.pop()
        return record.data

    desk, owned = deliver(world, 1, 2, decode=decode, on_decode_error="skip")
    asked: Any = desk.records.batches() if whole else desk.records
    with pytest.raises(StoreUnavailableError):
        await anext(asked)
    assert desk.done(owned) is None
    assert await desk.next() == "1"


@pytest.mark.parametrize("whole", [True, False])
async def test_a_lease_that_lapses_during_decoding_delays_the_record(
    world: World, whole: bool
) -> None:
    decode = Decoding(seconds=5)
    desk, owned = deliver(world, 1, decode=decode)
    owned.lease.deadline = world.clock.now() + 3
    asked: Any = desk.records.batches() if whole else desk.records
    waiting = asyncio.ensure_future(anext(asked))
    await asyncio.sleep(20)
    assert not waiting.done()
    assert owned.is_idle
    owned.lease.deadline = world.clock.now() + 60
    await waiting
    assert decode.calls == [1, 1]


@pytest.mark.parametrize("whole", [True, False])
async def test_a_shard_that_is_lost_during_decoding_delivers_no_more(
    world: World, whole: bool
) -> None:
    desk, owned = deliver(world, 1, 2, decode=Decoding(seconds=5))
    asked: Any = desk.records.batches() if whole else desk.records
    waiting = asyncio.ensure_future(anext(asked))
    await asyncio.sleep(1)
    owned.revoke()
    other = hold()
    desk.put(other, 7)
    item = await waiting
    assert [record.value for record in getattr(item, "records", [item])] == [7]
