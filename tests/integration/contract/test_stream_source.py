"""What the engine relies on in a stream source, on every backend."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import ShardMissingError, StreamMissingError
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Start
from tests.integration.contract.streams import data_of, read, read_page, tiles

if TYPE_CHECKING:
    from tests.integration.contract.streams import Streams

HALF = HASH_KEYS // 2
NO_SHARD = "shardId-000000000099"


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
    # The creation has whole seconds in some backends, the service's time in all.
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
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
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
    await streams.create(name, 2500)
    shards = await (await streams.source(name)).list_shards()
    assert len({shard.shard_id for shard in shards}) == 2500
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
            (b"\x00", "ünïcödé key", HALF // 2),
            (b"x" * 500_000, "k" * 256, HALF),
        )
    ]
    assert [shard for shard, _ in put] == [low.shard_id] * 2 + [high.shard_id]
    pages = await read(streams, source, low.shard_id, Start.TRIM_HORIZON)
    first, second = [record for page in pages for record in page.records]
    assert (first.data, first.partition_key) == (bytes(range(256)), "a")
    assert (second.data, second.partition_key) == (b"\x00", "ünïcödé key")
    assert first.sequence_number == put[0][1]
    assert first.sub_sequence_number is None
    assert first.approximate_arrival_timestamp is not None
    assert abs(first.approximate_arrival_timestamp - streams.now()) < 60
    other = await read(streams, source, high.shard_id, Start.TRIM_HORIZON)
    assert data_of(other) == [b"x" * 500_000]


async def test_sequence_numbers_grow(streams: Streams, name: str) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
    put = [await streams.put(name, b"%d" % number) for number in range(60)]
    positions = [Position(number) for _, number in put]
    assert positions == sorted(set(positions))
    pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [b"%d" % number for number in range(60)]
    read_back = [record.position for page in pages for record in page.records]
    assert read_back == positions


async def test_an_aggregate_is_left_as_it_is(streams: Streams, name: str) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
    content = b"\x0a\x01a\x1a\x05\x08\x00\x1a\x01x"
    aggregate = b"\xf3\x89\x9a\xc2" + content + hashlib.md5(content).digest()
    await streams.put(name, aggregate)
    pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [aggregate]


async def test_a_page_holds_no_more_than_asked_for(streams: Streams, name: str) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
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
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
    numbers = [(await streams.put(name, b"%d" % number))[1] for number in range(4)]

    async def from_(after: Position | Start) -> list[bytes]:
        await streams.pause()
        return data_of(await read(streams, source, shard.shard_id, after))

    assert await from_(Start.TRIM_HORIZON) == [b"0", b"1", b"2", b"3"]
    assert await from_(Position(numbers[1])) == [b"2", b"3"]
    # The rest of an aggregate is still to be read: the record comes again.
    assert await from_(Position(numbers[1], 7)) == [b"1", b"2", b"3"]
    assert await from_(Position(numbers[3])) == []
    assert await from_(Start.LATEST) == []


async def test_latest_sees_only_what_comes_later(streams: Streams, name: str) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
    await streams.put(name, b"before")
    iterator = await source.get_iterator(shard.shard_id, Start.LATEST)
    await streams.put(name, b"after")
    assert data_of([await source.get_records(iterator, 10)]) == [b"after"]


async def test_a_start_by_time_is_early_by_a_second_at_most(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
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
