"""The properties of the end of shards, and of their limits."""

from __future__ import annotations

import asyncio
import time

from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceThrottledError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.trial.acceptance.check import (
    AT_ONCE,
    Check,
    expect,
    expect_equal,
    expect_error,
    registrar,
)
from kinesumer.testing.trial.acceptance.contract.source import (
    ARRIVAL_SECONDS,
    HALF,
    data_of,
    expect_ended,
    one_shard,
    read,
    read_page,
    tiles,
)
from kinesumer.testing.trial.acceptance.resources import Streams

END_CHECKS: list[Check[[Streams, str]]] = []
check = registrar(END_CHECKS)


# --- the end of shards ----------------------------------------------------------------


@check(3)
async def a_split_shard_ends_with_its_children(streams: Streams, name: str) -> None:
    source, parent = await one_shard(streams, name)
    _, last = await streams.put(name, b"parent's")
    await streams.split(name, parent.shard_id)
    low_id, low_first = await streams.put(name, b"low", hash_key=0)
    high_id, high_first = await streams.put(name, b"high", hash_key=HALF)

    pages = await read(streams, source, parent.shard_id, Start.TRIM_HORIZON, 2)
    expect_ended(pages, [b"parent's"])
    expect_equal(pages[-1].millis_behind, 0, "lag at the end")
    expect_equal(
        sorted(pages[-1].children),
        [
            Shard(low_id, 0, HALF - 1, (parent.shard_id,)),
            Shard(high_id, HALF, HASH_KEYS - 1, (parent.shard_id,)),
        ],
        "children",
    )
    in_order = Position(last) < Position(low_first) < Position(high_first)
    expect(in_order, f"{last}, {low_first}, {high_first} aren't in order")
    low = await read(streams, source, low_id, Start.TRIM_HORIZON, 1)
    expect_equal(data_of(low), [b"low"])

    shards = {shard.shard_id: shard for shard in await source.list_shards()}
    expect(shards[parent.shard_id].closed, "the parent is listed as open")
    expect_equal(shards[low_id].parents, (parent.shard_id,), "parents")
    expect_equal(shards[high_id].parents, (parent.shard_id,), "parents")
    still_open = [shard for shard in shards.values() if not shard.closed]
    expect(tiles(still_open, 0, HASH_KEYS - 1), f"gaps or overlaps: {still_open}")


@check(3)
async def merged_shards_both_end_with_the_same_child(
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
        pages = await read(streams, source, parent.shard_id, Start.TRIM_HORIZON, 2)
        expect_ended(pages, [data])
        children = [child[:3] for child in pages[-1].children]
        expect_equal(children, [(child_id, 0, HASH_KEYS - 1)], "children")
        parents = set(pages[-1].children[0].parents)
        expect_equal(parents, {low.shard_id, high.shard_id}, "parents")
    shards = {shard.shard_id: shard for shard in await source.list_shards()}
    parents = set(shards[child_id].parents)
    expect_equal(parents, {low.shard_id, high.shard_id}, "parents")
    still_open = [s.shard_id for s in shards.values() if not s.closed]
    expect_equal(still_open, [child_id], "open shards")


@check(3)
async def a_closed_shard_read_to_the_end_ends_again(
    streams: Streams, name: str
) -> None:
    source, parent = await one_shard(streams, name)
    _, last = await streams.put(name, b"last")
    await streams.split(name, parent.shard_id)
    shards = {shard.shard_id: shard for shard in await source.list_shards()}
    # Other consumers store this number as a checkpoint, and Kinesis refuses it.
    ending = shards[parent.shard_id].ending_sequence_number or ""
    for after in (Start.LATEST, Position(last), Position(ending)):
        pages = await read(streams, source, parent.shard_id, after, 1)
        expect_ended(pages, [])
        expect_equal(len(pages[-1].children), 2, "children")


@check(3)
async def an_iterator_from_before_a_split_still_reads_to_the_end(
    streams: Streams, name: str
) -> None:
    source, parent = await one_shard(streams, name)
    iterator = await source.get_iterator(parent.shard_id, Start.LATEST)
    await streams.put(name, b"unread")
    await streams.split(name, parent.shard_id)
    pages = [await read_page(streams, source, iterator)]
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while pages[-1].next_iterator is not None and time.monotonic() < deadline:
        pages.append(await read_page(streams, source, pages[-1].next_iterator))
    expect_ended(pages, [b"unread"])
    expect_equal(len(pages[-1].children), 2, "children")


# --- limits ---------------------------------------------------------------------------


@check(1)
async def a_shard_read_too_fast_is_throttled(streams: Streams, name: str) -> None:
    source, shard = await one_shard(streams, name)
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    reads = (source.get_records(iterator, 10) for _ in range(AT_ONCE))
    answers = await asyncio.gather(*reads, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in errors:
        is_throttled = isinstance(error, SourceThrottledError)
        expect(is_throttled, f"a read failed: {error}")
    expect(bool(errors), f"none of {AT_ONCE} reads at once was throttled")
    await streams.pause(1)
    await read_page(streams, source, iterator)


@check(0)
async def an_old_iterator_expires(streams: Streams, name: str) -> None:
    await streams.pass_time(0)
    source, shard = await one_shard(streams, name)
    iterator = await source.get_iterator(shard.shard_id, Start.TRIM_HORIZON)
    await streams.pass_time(Limits().iterator_seconds + 1)
    with expect_error(ExpiredIteratorError):
        await source.get_records(iterator, 10)


@check(0)
async def a_position_beyond_retention_is_said_or_reading_begins_at_the_oldest(
    streams: Streams, name: str
) -> None:
    await streams.pass_time(0)
    source, shard = await one_shard(streams, name)
    info = await source.describe()
    _, first = await streams.put(name, b"expires")
    await streams.put(name, b"expires, too")
    await streams.pass_time(3600 * info.retention_hours + 60)
    await streams.put(name, b"stays")
    try:
        pages = await read(streams, source, shard.shard_id, Position(first), 1)
    except TrimmedPositionError:
        pages = await read(streams, source, shard.shard_id, Start.TRIM_HORIZON, 1)
    expect_equal(data_of(pages), [b"stays"])


@check(0)
async def a_closed_shard_is_gone_when_its_records_have_expired(
    streams: Streams, name: str
) -> None:
    await streams.pass_time(0)
    source, parent = await one_shard(streams, name)
    info = await source.describe()
    await streams.put(name, b"expires")
    await streams.split(name, parent.shard_id)
    await streams.pass_time(3600 * info.retention_hours + 60)
    shards = await source.list_shards()
    listed = [shard.shard_id for shard in shards]
    expect(parent.shard_id not in listed, "the parent is still listed")
    # The children still name the parent. Clients treat such a parent as read.
    expect_equal({shard.parents for shard in shards}, {(parent.shard_id,)}, "parents")
    with expect_error(ShardMissingError):
        await source.get_iterator(parent.shard_id, Start.TRIM_HORIZON)
