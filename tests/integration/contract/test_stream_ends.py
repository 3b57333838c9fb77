"""How shards end, and what limits a reader, on every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceThrottledError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, ChildShard, Start
from tests.integration.contract.streams import data_of, read, read_page, tiles

if TYPE_CHECKING:
    from tests.integration.contract.streams import Streams

HALF = HASH_KEYS // 2

no_end = pytest.mark.deviates("ministack", "a parent vanishes in place of ending")
no_limits = pytest.mark.deviates("kinesis-local", "it doesn't throttle")


@no_end
async def test_a_split_shard_ends_with_its_children(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [parent] = await source.list_shards()
    _, last = await streams.put(name, b"parent's")
    await streams.split(name, parent.shard_id)
    low_id, low_first = await streams.put(name, b"low", hash_key=0)
    high_id, high_first = await streams.put(name, b"high", hash_key=HALF)

    pages = await read(streams, source, parent.shard_id, Start.TRIM_HORIZON)
    assert data_of(pages) == [b"parent's"]
    assert pages[-1].next_iterator is None
    assert pages[-1].millis_behind == 0
    assert sorted(pages[-1].children) == [
        ChildShard(low_id, 0, HALF - 1, (parent.shard_id,)),
        ChildShard(high_id, HALF, HASH_KEYS - 1, (parent.shard_id,)),
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
    await streams.create(name)
    source = await streams.source(name)
    [parent] = await source.list_shards()
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
    await streams.create(name)
    source = await streams.source(name)
    [parent] = await source.list_shards()
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
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    with pytest.raises(SourceThrottledError):
        for _ in range(50):
            await source.get_records(iterator, 10)
    await streams.pause(1)
    await source.get_records(iterator, 10)


async def test_an_old_iterator_expires(streams: Streams, name: str) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    await streams.pass_time(301)
    with pytest.raises(ExpiredIteratorError):
        await source.get_records(iterator, 10)


async def test_a_position_beyond_retention_is_said_or_reading_begins_at_the_oldest(
    streams: Streams, name: str
) -> None:
    await streams.create(name)
    source = await streams.source(name)
    [shard] = await source.list_shards()
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
    await streams.create(name)
    source = await streams.source(name)
    [parent] = await source.list_shards()
    await streams.put(name, b"expires")
    await streams.split(name, parent.shard_id)
    await streams.pass_time(24 * 3600 + 60)
    shards = await source.list_shards()
    assert parent.shard_id not in [shard.shard_id for shard in shards]
    # The children still name it: a parent that nobody knows has been read.
    assert {shard.parents for shard in shards} == {(parent.shard_id,)}
    with pytest.raises(ShardMissingError):
        await source.get_iterator(parent.shard_id, Start.TRIM_HORIZON)
