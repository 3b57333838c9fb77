"""The properties of a stream, its shards and its records, and how checks read them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.errors import (
    ShardMissingError,
    SourceThrottledError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.ports import ReservedForAny, StreamSource
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    expect,
    expect_equal,
    expect_error,
    registrar,
)
from kinesumer.testing.trial.acceptance.resources import Streams
from kinesumer.wire.cbor import compiled

# Some servers send an event only once a second, and AWS needs time for all it does.
ARRIVAL_SECONDS = 60.0
HALF = HASH_KEYS // 2
NO_SHARD = "shardId-000000000099"

SOURCE_CHECKS: list[Check[[Streams, str]]] = []
check = registrar(SOURCE_CHECKS)


# --- the stream and its shards --------------------------------------------------------


@check(2)
async def a_stream_is_described(streams: Streams, name: str) -> None:
    before = streams.now()
    await streams.create(name, 2)
    info = await (await streams.source(name)).describe()
    expect(info.arn.startswith("arn:"), f"{info.arn} isn't an ARN")
    expect(info.arn.endswith(f":stream/{name}"), f"{info.arn} doesn't name {name}")
    expect_equal(info.status, "ACTIVE", "status")
    expect_equal(info.retention_hours, 24, "retention in hours")
    expect(info.max_record_bytes >= 1 << 20, "records can't have 1 MiB")
    # The service's time has whole seconds. So has the creation time in some backends.
    is_new = before - 5 <= info.created_at <= info.now + 2
    expect(is_new, f"created at {info.created_at}, after {before}, at {info.now}")
    expect(abs(info.now - streams.now()) < 5, f"the service's time is {info.now}")


@check(2)
async def a_stream_made_anew_is_told_by_its_creation(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    first = await source.describe()
    await streams.delete(name)
    await streams.pause(1.1)
    await streams.create(name)
    second = await source.describe()
    expect_equal(second.arn, first.arn)
    expect(first.created_at < second.created_at, "the creation time is the same")


@check(0)
async def a_missing_stream_is_reported_by_every_operation(
    streams: Streams, name: str
) -> None:
    source = await streams.source(name)
    with expect_error(StreamMissingError, name):
        await source.describe()
    with expect_error(StreamMissingError):
        await source.list_shards()
    with expect_error(StreamMissingError):
        await source.get_iterator(NO_SHARD, Start.LATEST)


@check(1)
async def a_stream_deleted_under_a_reader_is_reported(
    streams: Streams, name: str
) -> None:
    source, shard = await one_shard(streams, name)
    iterator = await source.get_iterator(shard.shard_id, Start.LATEST)
    await streams.delete(name)
    with expect_error(StreamMissingError):
        await read_page(streams, source, iterator)


@check(8)
async def open_shards_tile_the_hash_space(streams: Streams, name: str) -> None:
    for count in (1, 2, 5):
        stream = f"{name}-{count}"
        await streams.create(stream, count)
        shards = await (await streams.source(stream)).list_shards()
        expect_equal(len(shards), count, "shards")
        expect(tiles(shards, 0, HASH_KEYS - 1), f"gaps or overlaps: {shards}")
        fresh = not any(shard.closed or shard.parents for shard in shards)
        expect(fresh, f"a new shard is closed or has parents: {shards}")


@check(1)
async def a_missing_shard_is_told_from_a_missing_stream(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    with expect_error(ShardMissingError):
        await source.get_iterator(NO_SHARD, Start.TRIM_HORIZON)


# --- records --------------------------------------------------------------------------


@check(2)
async def records_come_as_they_were_put(streams: Streams, name: str) -> None:
    await streams.create(name, 2)
    source = await streams.source(name)
    low, high = await source.list_shards()
    put = [
        await streams.put(name, data, key, hash_key)
        for data, key, hash_key in (
            (bytes(range(256)), "a", 0),
            (b"\x00", 'ünïcödé "key" \\', HALF // 2),
            (b"x" * 500_000, "k" * 256, HALF),
        )
    ]
    shards = [shard for shard, _ in put]
    expect_equal(shards, [low.shard_id] * 2 + [high.shard_id], "shards")
    pages = await read(streams, source, low.shard_id, Start.TRIM_HORIZON, 2)
    found = records_of(pages)
    expect_equal(
        [(record.data, record.partition_key) for record in found],
        [(bytes(range(256)), "a"), (b"\x00", 'ünïcödé "key" \\')],
    )
    expect_equal([record.sequence_number for record in found], [n for _, n in put[:2]])
    expect_equal(found[0].sub_sequence_number, None, "sub-sequence number")
    age = streams.now() - arrival(found[0])
    expect(abs(age) < 60, f"a new record arrived {age:.0f} s ago")
    other = await read(streams, source, high.shard_id, Start.TRIM_HORIZON, 1)
    expect_equal(data_of(other), [b"x" * 500_000])


@check(1)
async def records_are_the_same_in_cbor_and_json(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    for data, key in ((b"", "a"), (b"\x00\xff", "ü"), (b"x" * 100_000, "k" * 256)):
        await streams.put(name, data, key)
    await read(streams, source, shard.shard_id, Start.TRIM_HORIZON, 3)
    pages = []
    for room in (None, ReservedForAny()):
        iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
        pages.append(await page_of_all(streams, source, iterator, room))
    expect_equal(pages[0].records, pages[1].records)
    expect_equal([len(record.data) for record in pages[1].records], [0, 2, 100_000])


@check(1)
async def a_page_is_sent_as_cbor_if_asked_for(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    await streams.put(name, b"x")
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    page = await read_page(streams, source, iterator, ReservedForAny())
    expect_equal(page.is_cbor, compiled is not None, "whether a page came as CBOR")


@check(1)
async def sequence_numbers_grow(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    put = [await streams.put(name, b"%d" % number) for number in range(20)]
    positions = [Position(number) for _, number in put]
    expect_equal(positions, sorted(set(positions)), "sequence numbers")
    pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON, 20)
    expect_equal(data_of(pages), [b"%d" % number for number in range(20)])
    read_back = [record.position for record in records_of(pages)]
    expect_equal(read_back, positions, "positions")


@check(1)
async def a_page_holds_no_more_than_asked_for(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    for number in range(5):
        await streams.put(name, b"%d" % number)
    everything = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON, 5)
    expect_equal(len(data_of(everything)), 5, "records")
    iterator: str | None = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    pages: list[Page] = []
    while not pages or pages[-1].records or pages[-1].millis_behind:
        expect(iterator is not None, "an open shard has ended")
        await streams.pause()
        page = await source.get_records(iterator or "", 3)
        expect(len(page.records) <= 3, f"{len(page.records)} records, 3 asked for")
        expect(not page.records or page.wire_bytes > 0, "the page's length is unknown")
        iterator = page.next_iterator
        pages.append(page)
    expect_equal(data_of(pages), [b"0", b"1", b"2", b"3", b"4"])
    expect_equal(pages[-1].children, (), "children of an open shard")
    expect(iterator is not None, "an open shard has ended")


# --- where reading begins -------------------------------------------------------------


@check(1)
async def reading_goes_on_at_any_position(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    numbers = [(await streams.put(name, b"%d" % number))[1] for number in range(4)]
    cases: list[tuple[Position | Start, list[bytes]]] = [
        (Start.TRIM_HORIZON, [b"0", b"1", b"2", b"3"]),
        (Position(numbers[1]), [b"2", b"3"]),
        # A part of the aggregate is unread, so its Kinesis record is returned again.
        (Position(numbers[1], 7), [b"1", b"2", b"3"]),
        (Position(numbers[3]), []),
        (Start.LATEST, []),
    ]
    for after, expected in cases:
        await streams.pause()
        pages = await read(streams, source, shard.shard_id, after, len(expected))
        expect_equal(data_of(pages), expected, f"after {after}")


@check(1)
async def latest_sees_only_what_comes_later(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    await streams.put(name, b"before")
    await read(streams, source, shard.shard_id, Start.TRIM_HORIZON, 1)
    await streams.pause()
    iterator = await source.get_iterator(shard.shard_id, Start.LATEST)
    await streams.put(name, b"after")
    page = await page_of_all(streams, source, iterator)
    expect_equal(data_of([page]), [b"after"])


@check(1)
async def a_start_by_time_is_exact_to_the_millisecond(
    streams: Streams, name: str
) -> None:
    source, shard = await one_shard(streams, name)
    for number in range(5):
        await streams.put(name, b"%d" % number)
        await streams.pause(0.02)
    pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON, 5)
    found = records_of(pages)
    starts = [streams.now() - 3600, *map(arrival, found)]
    for at in starts:
        start = Start(type="AT_TIMESTAMP", timestamp=at)
        await streams.pause()
        expected = [other.data for other in found if arrival(other) >= at]
        read_again = await read(streams, source, shard.shard_id, start, len(expected))
        arrivals = [f"{arrival(other) - at:+.3f}" for other in found]
        expect_equal(data_of(read_again), expected, f"records at {arrivals} s")


# --- reading --------------------------------------------------------------------------


async def one_shard(streams: Streams, stream: str) -> tuple[StreamSource, Shard]:
    """Create a stream, and return its source and its only shard."""
    await streams.create(stream)
    source = await streams.source(stream)
    shards = await source.list_shards()
    expect_equal(len(shards), 1, "shards of a new stream")
    return source, shards[0]


class Backend(Protocol):
    """A backend that has shards to read."""

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        """Wait until a shard can be read again."""


async def read_page(
    streams: Backend,
    source: StreamSource,
    iterator: str,
    room: ReservedForAny | None = None,
) -> Page:
    """Read a page as soon as the shard allows it: in JSON, unless there is a room."""
    while True:
        try:
            return await source.get_records(iterator, 10_000, room)
        except SourceThrottledError:
            await streams.pause()


async def read(
    streams: Backend,
    source: StreamSource,
    shard_id: str,
    after: Position | Start,
    at_least: int = 0,
) -> list[Page]:
    """Read a shard until its end, or until no more records arrive.

    Kinesis may show a record some time after it was put: the first ``at_least`` records
    are waited for.
    """
    iterator: str | None = await source.get_iterator(shard_id, after)
    found: list[Page] = []
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while iterator is not None:
        page = await read_page(streams, source, iterator)
        found.append(page)
        iterator = page.next_iterator
        is_at_tip = not page.records and not page.millis_behind
        if is_at_tip and (
            len(data_of(found)) >= at_least or time.monotonic() > deadline
        ):
            break
    return found


def data_of(pages: list[Page]) -> list[bytes]:
    """Return the data of all records, in order."""
    return [record.data for page in pages for record in page.records]


def tiles(shards: Sequence[Shard], first: int, last: int) -> bool:
    """Return whether shards cover the hash keys from first to last exactly once."""
    for shard in sorted(shards, key=lambda shard: shard.first_hash):
        if shard.first_hash != first:
            return False
        first = shard.last_hash + 1
    return first == last + 1


def records_of(pages: list[Page]) -> list[Record]:
    """Return all records, in order."""
    return [record for page in pages for record in page.records]


def arrival(record: Record) -> float:
    """Return a record's arrival time. Raise CheckFailedError if it has none."""
    if record.approximate_arrival_timestamp is None:
        raise CheckFailedError(f"record {record.sequence_number} has no arrival time")
    return record.approximate_arrival_timestamp


async def page_of_all(
    streams: Backend,
    source: StreamSource,
    iterator: str,
    room: ReservedForAny | None = None,
) -> Page:
    """Return the first page with records."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    following: str | None = iterator
    while following is not None and time.monotonic() < deadline:
        page = await read_page(streams, source, following, room)
        if page.records:
            return page
        following = page.next_iterator
    raise CheckFailedError(f"no record was read in {ARRIVAL_SECONDS:g} s")


def expect_ended(pages: list[Page], data: list[bytes]) -> None:
    """Raise CheckFailedError unless a shard had these records and has ended."""
    expect_equal(data_of(pages), data)
    expect(pages[-1].next_iterator is None, "the closed shard doesn't end")
