"""Test that a producer follows the strategy of its stream, and a reshard."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.core.backoff import DESCRIBE_SECONDS
from kinesumer.errors import FailedRecord, PutFailedError, RecordRefusedError
from kinesumer.model.streams import Shard
from kinesumer.producer import put_stream
from kinesumer.producer.record_producer import STRATEGY_SECONDS
from kinesumer.telemetry.api import Telemetry
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire.put_records import Entry
from tests.support.producers import add_all
from tests.support.toy_stream import ToyStream
from tests.support.world import World, run


def numbered(count: int) -> list[Entry]:
    return [Entry(b"%05d" % number, f"key-{number % 31}") for number in range(count)]


def places(stream: ToyStream) -> list[str]:
    """Return where the KCL finds each record, and the record's data."""
    return sorted(
        str((shard, r.sequence_number, r.sub_sequence_number, r.data))
        for shard, r in stream.read_as_the_kcl()
    )


class Origins(Telemetry):
    """Keeps the traceparents of each request, in order."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    def trace_put(
        self, stream_arn: str, count: int, traceparents: Iterable[str] = ()
    ) -> AbstractContextManager[object]:
        self.requests.append(sorted(traceparents))
        return nullcontext()


def auto_stream(shards: int = 4) -> ToyStream:
    stream = ToyStream(1, shards)
    stream.distribute(by_key=False)
    return stream


async def test_no_record_is_aggregated_for_a_stream_with_auto(
    world: World,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put_stream._warn_of_auto.cache_clear()
    stream = auto_stream()
    for _ in range(2):
        producer = stream.producer(ordered=True)
        await add_all(producer, numbered(300))
        await producer.flush()
    assert len(stream.stored) == 600
    assert not stream.aggregates()
    [warning] = caplog.messages
    assert "the producer's aggregate and ordered has no effect" in warning


async def test_records_that_are_packed_again_keep_their_origins(world: World) -> None:
    stream, origins = ToyStream(1, shards=1), Origins()
    producer = stream.producer(telemetry=origins)
    stream.split()
    for number, entry in enumerate(numbered(40)):
        await producer.add(entry, f"origin {number % 31}")
    retried = (await producer.flush()).retried
    assert retried > 0
    first, *others = origins.requests
    assert first == sorted(f"origin {number % 31}" for number in range(40))
    repeated = [origin for request in others for origin in request]
    assert len(repeated) == retried
    assert set(repeated) < set(first)


async def test_a_reshard_of_a_stream_with_auto_puts_nothing_twice(world: World) -> None:
    stream = auto_stream()
    producer = stream.producer()
    for number, entry in enumerate(numbered(600)):
        await producer.add(entry)
        if number % 100 == 99:
            stream.split()
            await asyncio.sleep(0.3)
    assert (await producer.flush()).retried == 0
    assert len(stream.stored) == 600
    assert stream.listings == 0


async def test_a_switch_to_auto_takes_one_listing_and_ends_aggregation(
    world: World,
) -> None:
    stream = ToyStream(1, shards=8)
    producer = stream.producer()
    await add_all(producer, numbered(300))
    await producer.flush()
    stream.distribute(by_key=False)
    aggregated = stream.aggregates()
    assert aggregated == len(stream.stored)
    await add_all(producer, numbered(300))
    await producer.flush()
    # The aggregates of the first request after the switch are the last ones.
    assert stream.aggregates() <= aggregated + 8
    assert (stream.descriptions, stream.listings) == (1, 1)
    aggregated, stored = stream.aggregates(), len(stream.stored)
    for _ in range(3):
        await add_all(producer, numbered(300))
        stream.split()
        await producer.flush()
    assert stream.aggregates() == aggregated
    assert len(stream.stored) == stored + 900
    assert (stream.descriptions, stream.listings) == (1, 1)
    read = sorted(record.data for _, record in stream.read_as_the_kcl())
    assert read == sorted(entry.data for entry in numbered(300) * 5)


async def test_aggregation_begins_again_within_a_minute_of_a_switch_back(
    world: World,
) -> None:
    stream = auto_stream()
    producer = stream.producer()
    await producer.add(numbered(1)[0])
    stream.distribute(by_key=True)
    await asyncio.sleep(STRATEGY_SECONDS)
    for _ in range(2):
        await add_all(producer, numbered(300))
        await asyncio.sleep(5)
    await producer.flush()
    assert 0 < stream.aggregates() <= 8
    assert (stream.descriptions, stream.listings) == (1, 1)
    assert len(stream.read_as_the_kcl()) == 601


def test_an_unexplained_place_ends_aggregation_for_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # As an old emulator, the stream doesn't tell its strategy.
    stream = ToyStream(1, shards=4)
    stream.routes_by_key = False

    async def work() -> None:
        producer = stream.producer()
        for _ in range(10):
            await add_all(producer, numbered(300))
            await producer.flush()

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "no records are aggregated for a minute" in caplog.text
    assert stream.listings <= 6
    assert len(stream.read_as_the_kcl()) == 3000


async def test_records_without_a_key_wait_for_no_other(world: World) -> None:
    stream = auto_stream()
    producer = stream.producer(ordered=True)
    for number in range(500):
        await producer.add(Entry(b"%d" % number))
    counts = await producer.flush()
    assert (counts.rows, counts.requests) == (500, 1)


async def test_a_missing_key_fails_alone_after_a_switch_to_keys(world: World) -> None:
    stream = auto_stream()
    producer = stream.producer()
    futures = [
        await producer.add(Entry(b"%d" % n, "key" if n % 2 else None))
        for n in range(100)
    ]
    stream.distribute(by_key=True)
    with pytest.raises(PutFailedError, match="partition_key is null") as caught:
        await producer.flush()
    assert isinstance(caught.value.__cause__, RecordRefusedError)
    assert [r.data for r in caught.value.records] == [
        b"%d" % n for n in range(0, 100, 2)
    ]
    assert {r.partition_key for r in caught.value.records} == {None}
    assert not any(future.exception() for future in futures[1::2])
    assert producer.buffered_bytes == 0
    await (await producer.add(Entry(b"more", "key")))
    assert len(stream.stored) == 51


async def test_a_key_may_be_missing_as_soon_as_the_stream_needs_none(
    world: World,
) -> None:
    stream = ToyStream(1, shards=4)
    producer = stream.producer()
    keyless = Entry(b"x")
    assert "is null" in (await producer.stream.refusal(keyless) or "")
    stream.distribute(by_key=False)
    # The stream is described at most once a second.
    assert await producer.stream.refusal(keyless) is not None
    await asyncio.sleep(DESCRIBE_SECONDS)
    assert await producer.stream.refusal(keyless) is None
    await (await producer.add(keyless))
    # The next records follow the strategy that was read for this one.
    await add_all(producer, numbered(300))
    await asyncio.sleep(1)
    await producer.flush()
    assert len(stream.read_as_the_kcl()) == 301


@pytest.mark.slow
@settings(max_examples=80)
@given(
    seed=st.integers(0, 10_000),
    ordered=st.booleans(),
    refuses=st.sampled_from([0.0, 0.3]),
    # The stream's strategy: by keys, by AUTO, or one that changes.
    strategy=st.sampled_from(["keys", "keys first", "AUTO first"]),
)
def test_the_kcl_reads_each_record_once_and_in_order_however_the_stream_changes(
    seed: int, ordered: bool, refuses: float, strategy: str
) -> None:
    stream, keeps_keys = ToyStream(seed, shards=6), strategy == "keys"
    stream.distribute(by_key=strategy != "AUTO first")
    stream.refuses = refuses
    draw = stream.chance.random

    def change() -> None:
        merge = stream.merge if len(stream.opened()) > 1 else stream.split
        changes: list[Callable[[], None]] = [stream.split, merge]
        if not keeps_keys:
            changes += [partial(stream.distribute, by_key=by) for by in (True, False)]
        stream.chance.choice(changes)()

    def entry(number: int) -> Entry:
        by_key = stream.info.routes_by_key
        key = f"key-{number % 31}" if by_key or draw() < 0.7 else None
        return Entry(b"%05d" % number, key)

    async def work() -> None:
        refused: list[FailedRecord] = []
        producer = stream.producer(ordered=ordered, on_refused=refused.append)
        futures = []
        for number in range(400):
            futures.append((number, await producer.add(entry(number))))
            if number % 10 == 0:
                await asyncio.sleep(draw() / 10 if draw() < 0.9 else 70 * draw())
            if number % 40 == 39:
                change()
        if not keeps_keys:
            stream.distribute(by_key=False)  # from now on, no record is refused
        done = await asyncio.gather(*(f for _, f in futures), return_exceptions=True)
        assert producer.buffered_bytes == 0
        results = [
            (*result, b"%05d" % number)
            for (number, _), result in zip(futures, done, strict=True)
            if not isinstance(result, BaseException)
        ]
        failures = [each for each in done if isinstance(each, PutFailedError)]
        assert len(results) + len(failures) == 400
        assert not (keeps_keys and failures)
        assert {each.records[0].partition_key for each in failures} <= {None}
        assert {record.partition_key for record in refused} <= {None}
        assert sorted(map(str, results)) == places(stream)
        read = stream.read_as_the_kcl() if ordered and keeps_keys else []
        for key in {record.partition_key for _, record in read}:
            data = [record.data for _, record in read if record.partition_key == key]
            assert data == sorted(data)

    run(work(), seed)


def test_records_are_not_put_again_if_no_reshard_is_listed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ToyStream(1, shards=2)
    listed = list(stream.shards)
    stream.split()

    async def list_shards() -> list[Shard]:
        return listed

    monkeypatch.setattr(stream, "list_shards", list_shards)

    async def work() -> None:
        producer = stream.producer(ordered=False, shards=listed)
        for number in range(200):
            await producer.add(Entry(b"%d" % number, str(number)))
        assert (await producer.flush()).rows == 200

    with caplog.at_level(logging.WARNING):
        VirtualLoop(random.Random(1)).run(work())
    assert "lists no reshard" in caplog.text
    put = Counter(stored.partition_key for _, _, stored in stream.stored)
    assert max(put.values()) == 1
