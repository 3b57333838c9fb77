"""The properties of the end of a table stream's shards, and of their limits."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    SourceThrottledError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start
from kinesumer.testing.trial.acceptance.check import (
    AT_ONCE,
    Check,
    expect,
    expect_equal,
    expect_error,
    registrar,
)
from kinesumer.testing.trial.acceptance.contract.source import read, records_of
from kinesumer.testing.trial.acceptance.contract.table_source import (
    changes,
    item,
    list_shards,
    numbers,
    one_item,
    read_to_end,
    records_by_shard,
)
from kinesumer.testing.trial.acceptance.table_resources import StreamedTables

ITERATOR_SECONDS = 900  # AWS documents that they live for 15 minutes

TABLE_END_CHECKS: list[Check[[StreamedTables, str]]] = []
check = registrar(TABLE_END_CHECKS)


# --- the end of shards ----------------------------------------------------------------


@check(0)
async def a_shard_rolled_over_ends_with_its_child(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 2)
    await tables.roll_over(name)
    await tables.set_number(name, "a", 2)
    pages = await table.read(tables, Start.TRIM_HORIZON, 2)
    expect_equal(numbers(records_of(pages)), [0, 1])
    [child] = expect_children(pages, table.shard_id, 1)
    inherited = await read(tables, table.source, child.shard_id, Start.TRIM_HORIZON, 1)
    expect_equal(numbers(records_of(inherited)), [2])
    last, first = table.records[-1].position, records_of(inherited)[0].position
    expect(last < first, f"{first} of a child doesn't follow {last} of its parent")
    shards = {shard.shard_id: shard for shard in await list_shards(table.source)}
    expect(shards[table.shard_id].closed, "the parent is listed as open")
    expect(not shards[child.shard_id].closed, "the child is listed as closed")
    expect_equal(shards[child.shard_id].parents, (table.shard_id,), "parents")


@check(0)
async def a_split_shard_of_a_table_ends_with_its_children(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 1)
    await tables.split(name, table.shard_id)
    pages = await table.read(tables, Start.TRIM_HORIZON, 1)
    children = expect_children(pages, table.shard_id, 2)
    listed = [shard.shard_id for shard in await list_shards(table.source)]
    for child in children:
        expect(child.shard_id in listed, f"{child.shard_id} isn't listed")


@check(0)
async def a_closed_shard_of_a_table_ends_again(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 1)
    early = await table.source.get_iterator(table.shard_id, Start.LATEST)
    await tables.set_number(name, "a", 1)
    await tables.roll_over(name)
    pages = await read_to_end(tables, table.source, early)
    expect_equal(numbers(records_of(pages)), [1])
    expect_children(pages, table.shard_id, 1)
    shards = {shard.shard_id: shard for shard in await list_shards(table.source)}
    ending = shards[table.shard_id].ending_sequence_number or ""
    last = records_of(pages)[-1].position
    for after in (Start.LATEST, last, Position(ending)):
        again = await table.read(tables, after)
        expect_equal(records_of(again), [], f"records after {after}")
        expect_children(again, table.shard_id, 1)


@check(0)
async def the_changes_of_an_item_follow_the_lineage(
    tables: StreamedTables, name: str
) -> None:
    await tables.create_streamed(name)
    source = await tables.source(name)
    for generation in range(3):
        for key in range(5):
            await tables.put(name, item(str(key), n={"N": str(generation)}))
        if generation == 0:
            [shard, *_] = await list_shards(source)
            await tables.split(name, shard.shard_id)
        else:
            await tables.roll_over(name)
    found = await records_by_shard(tables, source, 15)
    parents = {shard.shard_id: shard.parents for shard in await list_shards(source)}
    places = defaultdict(list)
    for shard_id, records in found.items():
        for record in records:
            places[record.change.keys["id"]].append(shard_id)
    expect_equal(len(places), 5, "items")
    for key, (first, second, third) in places.items():
        chain = (parents[second], parents[third])
        expect_equal(chain, ((first,), (second,)), f"parents of the shards of {key}")


# --- limits and lifetimes -------------------------------------------------------------


@check(0)
async def a_shard_of_a_table_read_too_fast_is_throttled(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 1)
    iterator = await table.source.get_iterator(table.shard_id, Start.TRIM_HORIZON)
    reads = (table.source.get_records(iterator, 10) for _ in range(AT_ONCE))
    answers = await asyncio.gather(*reads, return_exceptions=True)
    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in errors:
        is_throttled = isinstance(error, SourceThrottledError)
        expect(is_throttled, f"a read failed: {error}")
    expect(bool(errors), f"none of {AT_ONCE} reads at once was throttled")
    await tables.pause(1 + CALL_SECONDS)
    await table.source.get_records(iterator, 10)


@check(0)
async def an_old_iterator_of_a_table_expires(tables: StreamedTables, name: str) -> None:
    await tables.pass_time(0)
    table = await one_item(tables, name, 1)
    iterator = await table.source.get_iterator(table.shard_id, Start.TRIM_HORIZON)
    await tables.pass_time(ITERATOR_SECONDS + 1)
    with expect_error(ExpiredIteratorError):
        await table.source.get_records(iterator, 10)


@check(0)
async def a_position_a_day_old_is_said_to_be_trimmed(
    tables: StreamedTables, name: str
) -> None:
    await tables.pass_time(0)
    table = await one_item(tables, name, 2)
    # The shard closes after 4 hours, and expires a day later.
    await tables.pass_time(25 * 3600)
    with expect_error(TrimmedPositionError):
        await table.source.get_iterator(table.shard_id, table.records[0].position)
    pages = await table.read(tables, Start.TRIM_HORIZON)
    expect_equal(records_of(pages), [], "expired records")


@check(0)
async def a_closed_shard_of_a_table_is_gone_a_day_after_its_end(
    tables: StreamedTables, name: str
) -> None:
    await tables.pass_time(0)
    table = await one_item(tables, name, 1)
    await tables.pass_time(29 * 3600)
    shards = await list_shards(table.source)
    listed = [shard.shard_id for shard in shards]
    expect(table.shard_id not in listed, "the shard is still listed")
    # Its child still names it. Clients treat such a parent as read.
    parents = {parent for shard in shards for parent in shard.parents}
    expect(table.shard_id in parents, f"no shard names its parent: {shards}")
    with expect_error(ShardMissingError):
        await table.source.get_iterator(table.shard_id, Start.TRIM_HORIZON)


@check(0)
async def an_item_that_expired_is_told_from_a_deleted_one(
    tables: StreamedTables, name: str
) -> None:
    await tables.create_streamed(name)
    await tables.expire_by(name, "until")
    await tables.put(name, item("deleted", until={"N": "1"}))
    await tables.remove(name, "deleted")
    await tables.put(name, item("expired", until={"N": "1"}))
    await tables.delete_expired(name)
    found = await changes(tables, await tables.source(name), 4)
    removed = {
        change.keys["id"]: change.expired for change in found if change.kind == "REMOVE"
    }
    expect_equal(removed, {"deleted": False, "expired": True})


def expect_children(pages: list[Page], parent: str, count: int) -> list[Shard]:
    """Return the children that a shard's last page names, if there are so many."""
    expect(pages[-1].next_iterator is None, "the closed shard doesn't end")
    children = sorted(pages[-1].children)
    expect_equal([child.parents for child in children], [(parent,)] * count, "parents")
    return children
