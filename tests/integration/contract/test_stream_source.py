"""Test that every backend has the properties of a stream that we rely on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceThrottledError,
    StreamMissingError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from tests.integration.contract.streams import (
    data_of,
    one_shard,
    read,
    read_page,
    tiles,
)

if TYPE_CHECKING:
    from tests.integration.contract.streams import Streams

# The module's tests share AWS clients, so they must run on one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

HALF = HASH_KEYS // 2
NO_SHARD = "shardId-000000000099"

no_end = pytest.mark.deviates("ministack", "a parent vanishes in place of ending")
no_limits = pytest.mark.deviates("kinesis-local", "it doesn't throttle")


# --- the stream and its shards -------------------------------------------------------


async def test_a_stream_is_described(streams: Streams, name: str) -> None:
    before = streams.now()
    await streams.create(name, 2)
    info = await (await streams.source(name)).describe()
    assert info.arn.startswith("arn:aws:kinesis:")
    assert info.arn.endswith(f":stream/{name}")
    assert info.status == "ACTIVE"
    assert info.retention_hours == 24
    assert info.max_record_bytes >= 1 << 20
    # The service's time has whole seconds. So has the creation time in some backends.
    assert before - 2 <= info.created_at <= info.now + 2
    assert abs(info.now - streams.now()) < 5


async def test_a_stream_made_anew_is_told_by_its_creation(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    first = await source.describe()
    await streams.delete(name)
    await streams.pause(1.1)
    await streams.create(name)
    second = await source.describe()
    assert first.arn == second.arn
    assert first.created_at < second.created_at


async def test_a_missing_stream_is_reported_by_every_operation(
    streams: Streams, name: str
) -> None:
    source = await streams.source(name)
    with pytest.raises(StreamMissingError, match=name):
        await source.describe()
    with pytest.raises(StreamMissingError):
        await source.list_shards()
    with pytest.raises(StreamMissingError):
        await source.get_iterator(NO_SHARD, Start.LATEST)


@pytest.mark.deviates("ministack", "its iterators expire with the stream")
async def test_a_stream_deleted_under_a_reader_is_reported(
    streams: Streams, name: str
) -> None:
    source, shard = await one_shard(streams, name)
    iterator = await source.get_iterator(shard.shard_id, Start.LATEST)
    await streams.delete(name)
    with pytest.raises(StreamMissingError):
        await read_page(streams, source, iterator)


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_open_shards_tile_the_hash_space(
    streams: Streams, name: str, count: int
) -> None:
    await streams.create(name, count)
    shards = await (await streams.source(name)).list_shards()
    assert len(shards) == count
    assert tiles(shards, 0, HASH_KEYS - 1)
    assert not any(shard.closed or shard.parents for shard in shards)


@pytest.mark.deviates("ministack", "its listing can't be continued")
@pytest.mark.deviates("kinesis-local", "it creates 1,000 shards at most")
@pytest.mark.deviates("endpoint", "accounts have 500 shards or fewer by default")
async def test_more_shards_than_a_page_holds_are_listed(
    streams: Streams, name: str
) -> None:
    await streams.create(name, 1100)
    shards = await (await streams.source(name)).list_shards()
    assert len({shard.shard_id for shard in shards}) == 1100
    assert tiles(shards, 0, HASH_KEYS - 1)


async def test_a_missing_shard_is_told_from_a_missing_stream(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    with pytest.raises(ShardMissingError):
        await source.get_iterator(NO_SHARD, Start.TRIM_HORIZON)


# --- records -------------------------------------------------------------------------


async def test_records_come_as_they_were_put(streams: Streams, name: str) -> None:
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
    assert [shard for shard, _ in put] == [low.shard_id] * 2 + [high.shard_id]
    pages = await read(streams, source, low.shard_id, Start.TRIM_HORIZON)
    first, second = [record for page in pages for record in page.records]
    assert (first.data, first.partition_key) == (bytes(range(256)), "a")
    assert (second.data, second.partition_key) == (b"\x00", 'ünïcödé "key" \\')
    assert first.sequence_number == put[0][1]
    assert first.sub_sequence_number is None
    assert first.approximate_arrival_timestamp is not None
    assert abs(first.approximate_arrival_timestamp - streams.now()) < 60
    other = await read(streams, source, high.shard_id, Start.TRIM_HORIZON)
    assert data_of(other) == [b"x" * 500_000]


async def test_records_are_the_same_in_cbor(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    for data, key in ((b"", "a"), (b"\x00\xff", "ü"), (b"x" * 100_000, "k" * 256)):
        await streams.put(name, data, key)
    pages = []
    for asks_cbor in (False, True):
        iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
        page = await read_page(streams, source, iterator, asks_cbor=asks_cbor)
        pages.append(page.records)
    assert pages[0] == pages[1]
    assert [len(record.data) for record in pages[1]] == [0, 2, 100_000]


async def test_sequence_numbers_grow(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    put = [await streams.put(name, b"%d" % number) for number in range(20)]
    positions = [Position(number) for _, number in put]
    assert positions == sorted(set(positions))
    pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [b"%d" % number for number in range(20)]
    read_back = [record.position for page in pages for record in page.records]
    assert read_back == positions


async def test_an_aggregate_is_left_as_it_is(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    content = b"\x0a\x01a\x1a\x05\x08\x00\x1a\x01x"
    aggregate = b"\xf3\x89\x9a\xc2" + content + hashlib.md5(content).digest()
    await streams.put(name, aggregate)
    pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [aggregate]


async def test_a_page_holds_no_more_than_asked_for(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    for number in range(5):
        await streams.put(name, b"%d" % number)
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    first = await source.get_records(iterator, 3)
    assert data_of([first]) == [b"0", b"1", b"2"]
    assert first.wire_bytes > 0
    await streams.pause()
    assert first.next_iterator is not None
    second = await source.get_records(first.next_iterator, 3)
    assert data_of([second]) == [b"3", b"4"]
    assert second.millis_behind == 0
    await streams.pause()
    assert second.next_iterator is not None
    third = await source.get_records(second.next_iterator, 3)
    assert (third.records, third.millis_behind, third.children) == ([], 0, ())
    assert third.next_iterator is not None


# --- where reading begins ------------------------------------------------------------


async def test_reading_goes_on_at_any_position(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    numbers = [(await streams.put(name, b"%d" % number))[1] for number in range(4)]

    async def from_(after: Position | Start) -> list[bytes]:
        await streams.pause()
        return data_of(await read(streams, source, shard.shard_id, after))

    assert await from_(Start.TRIM_HORIZON) == [b"0", b"1", b"2", b"3"]
    assert await from_(Position(numbers[1])) == [b"2", b"3"]
    # A part of the aggregate is unread, so its Kinesis record is returned again.
    assert await from_(Position(numbers[1], 7)) == [b"1", b"2", b"3"]
    assert await from_(Position(numbers[3])) == []
    assert await from_(Start.LATEST) == []


async def test_latest_sees_only_what_comes_later(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    await streams.put(name, b"before")
    iterator = await source.get_iterator(shard.shard_id, Start.LATEST)
    await streams.put(name, b"after")
    assert data_of([await source.get_records(iterator, 10)]) == [b"after"]


async def test_a_start_by_time_is_early_by_a_second_at_most(
    streams: Streams, name: str
) -> None:
    source, shard = await one_shard(streams, name)
    await streams.put(name, b"long before")
    await streams.pause(2.2)
    await streams.put(name, b"then")
    await streams.put(name, b"later")
    await streams.pause()
    everything = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON)
    then = [r for page in everything for r in page.records][1]
    at = Start(type="AT_TIMESTAMP", timestamp=then.approximate_arrival_timestamp)
    await streams.pause()
    pages = await read(streams, source, shard.shard_id, at)
    assert data_of(pages) == [b"then", b"later"]
    before = Start(type="AT_TIMESTAMP", timestamp=streams.now() - 3600)
    await streams.pause()
    pages = await read(streams, source, shard.shard_id, before)
    assert data_of(pages) == [b"long before", b"then", b"later"]


# --- the end of shards ---------------------------------------------------------------


@no_end
async def test_a_split_shard_ends_with_its_children(
    streams: Streams, name: str
) -> None:
    source, parent = await one_shard(streams, name)
    _, last = await streams.put(name, b"parent's")
    await streams.split(name, parent.shard_id)
    low_id, low_first = await streams.put(name, b"low", hash_key=0)
    high_id, high_first = await streams.put(name, b"high", hash_key=HALF)

    pages = await read(streams, source, parent.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [b"parent's"]
    assert pages[-1].next_iterator is None
    assert pages[-1].millis_behind == 0
    assert sorted(pages[-1].children) == [
        Shard(low_id, 0, HALF - 1, (parent.shard_id,)),
        Shard(high_id, HALF, HASH_KEYS - 1, (parent.shard_id,)),
    ]
    assert Position(last) < Position(low_first) < Position(high_first)
    low = await read(streams, source, low_id, Start.TRIM_HORIZON)
    assert data_of(low) == [b"low"]

    shards = {shard.shard_id: shard for shard in await source.list_shards()}
    assert shards[parent.shard_id].closed
    assert shards[low_id].parents == shards[high_id].parents == (parent.shard_id,)
    assert tiles([s for s in shards.values() if not s.closed], 0, HASH_KEYS - 1)


@no_end
async def test_merged_shards_both_end_with_the_same_child(
    streams: Streams, name: str
) -> None:
    await streams.create(name, 2)
    source = await streams.source(name)
    low, high = await source.list_shards()
    await streams.put(name, b"low", hash_key=0)
    await streams.put(name, b"high", hash_key=HALF)
    await streams.merge(name, low.shard_id, high.shard_id)
    child_id, _ = await streams.put(name, b"child's", hash_key=HALF)

    for parent, data in ((low, b"low"), (high, b"high")):
        pages = await read(streams, source, parent.shard_id, Start.TRIM_HORIZON)
        assert data_of(pages) == [data]
        assert pages[-1].next_iterator is None
        [child] = pages[-1].children
        assert child[:3] == (child_id, 0, HASH_KEYS - 1)
        assert set(child.parents) == {low.shard_id, high.shard_id}
    shards = {shard.shard_id: shard for shard in await source.list_shards()}
    assert set(shards[child_id].parents) == {low.shard_id, high.shard_id}
    assert [s.shard_id for s in shards.values() if not s.closed] == [child_id]


@no_end
@pytest.mark.parametrize("after", ["last", "LATEST"])
async def test_a_closed_shard_read_to_the_end_ends_again(
    streams: Streams, name: str, after: str
) -> None:
    source, parent = await one_shard(streams, name)
    _, last = await streams.put(name, b"last")
    await streams.split(name, parent.shard_id)
    start = Start.LATEST if after == "LATEST" else Position(last)
    pages = await read(streams, source, parent.shard_id, start)
    assert data_of(pages) == []
    assert pages[-1].next_iterator is None
    assert len(pages[-1].children) == 2


@no_end
async def test_an_iterator_from_before_a_split_still_reads_to_the_end(
    streams: Streams, name: str
) -> None:
    source, parent = await one_shard(streams, name)
    iterator = await source.get_iterator(parent.shard_id, Start.LATEST)
    await streams.put(name, b"unread")
    await streams.split(name, parent.shard_id)
    pages = [await read_page(streams, source, iterator)]
    while pages[-1].next_iterator is not None:
        pages.append(await read_page(streams, source, pages[-1].next_iterator))
    assert data_of(pages) == [b"unread"]
    assert len(pages[-1].children) == 2


# --- limits --------------------------------------------------------------------------


@no_limits
@pytest.mark.deviates("ministack", "it doesn't throttle")
@pytest.mark.deviates("endpoint", "what is slow to reach is never read too fast")
async def test_a_shard_read_too_fast_is_throttled(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    with pytest.raises(SourceThrottledError):
        for _ in range(50):
            await source.get_records(iterator, 10)
    await streams.pause(1)
    await source.get_records(iterator, 10)


async def test_an_old_iterator_expires(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    await streams.pass_time(301)
    with pytest.raises(ExpiredIteratorError):
        await source.get_records(iterator, 10)


async def test_a_position_beyond_retention_is_said_or_reading_begins_at_the_oldest(
    streams: Streams, name: str
) -> None:
    source, shard = await one_shard(streams, name)
    _, first = await streams.put(name, b"expires")
    await streams.put(name, b"expires, too")
    await streams.pass_time(24 * 3600 + 60)
    await streams.put(name, b"stays")
    try:
        pages = await read(streams, source, shard.shard_id, Position(first))
    except TrimmedPositionError:
        pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [b"stays"]


async def test_a_closed_shard_is_gone_when_its_records_have_expired(
    streams: Streams, name: str
) -> None:
    source, parent = await one_shard(streams, name)
    await streams.put(name, b"expires")
    await streams.split(name, parent.shard_id)
    await streams.pass_time(24 * 3600 + 60)
    shards = await source.list_shards()
    assert parent.shard_id not in [shard.shard_id for shard in shards]
    # The children still name the parent. Clients treat such a parent as read.
    assert {shard.parents for shard in shards} == {(parent.shard_id,)}
    with pytest.raises(ShardMissingError):
        await source.get_iterator(parent.shard_id, Start.TRIM_HORIZON)
