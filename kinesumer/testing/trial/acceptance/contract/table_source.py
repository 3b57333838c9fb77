"""The properties of a table's stream and its records, and how checks read them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from kinesumer.aws.table_streams import TableStreamSource
from kinesumer.errors import (
    ShardMissingError,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.model.changes import Change
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, Start
from kinesumer.testing.trial.acceptance.check import (
    Check,
    CheckFailedError,
    expect,
    expect_equal,
    expect_error,
    registrar,
)
from kinesumer.testing.trial.acceptance.contract.source import (
    ARRIVAL_SECONDS,
    arrival,
    page_of_all,
    read,
    read_page,
    records_of,
)
from kinesumer.testing.trial.acceptance.resources import RETRIES
from kinesumer.testing.trial.acceptance.table_resources import StreamedTables

NO_SHARD = "shardId-00000000000000000001-00000001"

TABLE_CHECKS: list[Check[[StreamedTables, str]]] = []
check = registrar(TABLE_CHECKS)


# --- the stream -----------------------------------------------------------------------


@check(0)
async def a_tables_stream_is_described(tables: StreamedTables, name: str) -> None:
    before = tables.now()
    await tables.create_streamed(name)
    source = await tables.source(name)
    info = await source.describe()
    expect(f":table/{name}/stream/" in info.arn, f"{info.arn} doesn't name {name}")
    expect_equal(info.status, "ACTIVE", "status")
    expect_equal(info.retention_hours, 24, "retention in hours")
    is_new = before - 5 <= info.created_at <= info.now + 2
    expect(is_new, f"created at {info.created_at}, after {before}, at {info.now}")
    shards = await list_shards(source)
    expect(bool(shards), "a new stream has no shard")
    fresh = not any(shard.closed or shard.parents for shard in shards)
    expect(fresh, f"a new shard is closed or has parents: {shards}")


@check(0)
async def a_table_without_a_stream_is_reported(
    tables: StreamedTables, name: str
) -> None:
    with expect_error(StreamMissingError, name):
        await tables.source(name)
    await tables.create_streamed(name, None)
    with expect_error(StreamMissingError, name):
        await tables.source(name)


@check(0)
async def a_missing_shard_of_a_table_is_told_from_a_missing_stream(
    tables: StreamedTables, name: str
) -> None:
    await tables.create_streamed(name)
    source = await tables.source(name)
    with expect_error(ShardMissingError):
        await source.get_iterator(NO_SHARD, Start.TRIM_HORIZON)
    missing = await tables.source(f"{await source.arn()}0")
    with expect_error(StreamMissingError):
        await missing.describe()


@check(0)
async def a_stream_enabled_again_is_another_one(
    tables: StreamedTables, name: str
) -> None:
    await tables.create_streamed(name)
    first = await tables.source(name)
    await tables.put(name, item("first"))
    await changes(tables, first, 1)
    await tables.set_stream(name, None)
    with expect_error(StreamMissingError, name):
        await tables.source(name)
    await tables.set_stream(name, "KEYS_ONLY")
    second = await tables.source(name)
    expect(await first.arn() != await second.arn(), "both streams have one ARN")
    with expect_error(StreamRecreatedError):
        await first.describe()
    await tables.put(name, item("second"))
    expect_equal(keys(await changes(tables, second, 1)), ["second"])
    # What the first one has stays readable for a day, and its shards end.
    expect_equal(keys(await changes(tables, first, 1)), ["first"])
    for shard in await list_shards(first):
        pages = await read(tables, first, shard.shard_id, Start.TRIM_HORIZON)
        expect(pages[-1].next_iterator is None, "a shard of a disabled stream goes on")


# --- changes --------------------------------------------------------------------------


@check(0)
async def each_change_of_an_item_is_a_record(tables: StreamedTables, name: str) -> None:
    await tables.create_streamed(name)
    await tables.put(name, item("a", n={"N": "1"}))
    await tables.put(name, item("a", n={"N": "1"}))  # changes nothing
    await tables.set_number(name, "a", 2)
    await tables.set_number(name, "a", 2)  # nor does this
    await tables.remove(name, "a")
    await tables.remove(name, "a")  # nor this
    await tables.set_number(name, "a", 3)
    one, two, three = ({"id": "a", "n": number} for number in (1, 2, 3))
    expect_equal(
        await changes(tables, await tables.source(name), 4),
        [
            Change("INSERT", {"id": "a"}, one, None),
            Change("MODIFY", {"id": "a"}, two, one),
            Change("REMOVE", {"id": "a"}, None, two),
            Change("INSERT", {"id": "a"}, three, None),
        ],
    )


@check(0)
async def values_of_all_types_come_as_they_were_put(
    tables: StreamedTables, name: str
) -> None:
    await tables.create_streamed(name)
    values = item(
        'ünïcödé "key" \\',
        whole={"N": "12345678901234567890"},
        part={"N": "-0.25"},
        data={"B": bytes(range(256))},
        yes={"BOOL": True},
        nothing={"NULL": True},
        texts={"SS": ["a", "b"]},
        numbers={"NS": ["1", "2.5"]},
        blobs={"BS": [b"1", b"\xff"]},
        nested={"M": {"list": {"L": [{"B": b"x"}, {"M": {}}, {"S": ""}]}}},
    )
    await tables.put(name, values)
    [change] = await changes(tables, await tables.source(name), 1)
    expect_equal(
        change.new_image,
        {
            "id": 'ünïcödé "key" \\',
            "whole": 12345678901234567890,
            "part": Decimal("-0.25"),
            "data": bytes(range(256)),
            "yes": True,
            "nothing": None,
            "texts": {"a", "b"},
            "numbers": {1, Decimal("2.5")},
            "blobs": {b"1", b"\xff"},
            "nested": {"list": [b"x", {}, ""]},
        },
    )


@check(0)
async def a_view_type_selects_the_images(tables: StreamedTables, name: str) -> None:
    old, new = {"id": "a", "n": 1}, {"id": "a", "n": 2}
    images = {
        "KEYS_ONLY": (None, None),
        "NEW_IMAGE": (None, new),
        "OLD_IMAGE": (old, None),
        "NEW_AND_OLD_IMAGES": (old, new),
    }
    for view, expected in images.items():
        table = f"{name}-{view}"
        await tables.create_streamed(table, view)
        await tables.put(table, item("a", n={"N": "1"}))
        await tables.put(table, item("a", n={"N": "2"}))
        _, change = await changes(tables, await tables.source(table), 2)
        expect_equal((change.old_image, change.new_image), expected, view)


@check(0)
async def batches_and_transactions_have_a_record_for_each_change(
    tables: StreamedTables, name: str
) -> None:
    await tables.create_streamed(name)
    await tables.put(name, item("old"))
    put = {"PutRequest": {"Item": item("batch")}}
    await tables.write_batch({name: [put, {"PutRequest": {"Item": item("old")}}]})
    await tables.transact(
        [
            {"Put": {"TableName": name, "Item": item("transaction")}},
            {"Delete": {"TableName": name, "Key": item("old")}},
        ]
    )
    found = await changes(tables, await tables.source(name), 4)
    kinds = sorted((change.keys["id"], change.kind) for change in found)
    expect_equal(
        kinds,
        [
            ("batch", "INSERT"),
            ("old", "INSERT"),
            ("old", "REMOVE"),
            ("transaction", "INSERT"),
        ],
    )


@check(0)
async def sequence_numbers_of_an_item_grow(tables: StreamedTables, name: str) -> None:
    table = await one_item(tables, name, 50)
    positions = [record.position for record in table.records]
    expect_equal(positions, sorted(set(positions)), "positions")
    expect_equal(numbers(table.records), list(range(50)), "changes")


# --- where reading begins, and pages --------------------------------------------------


@check(0)
async def reading_a_table_goes_on_at_any_position(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 4)
    second, last = table.records[1].position, table.records[3].position
    cases: list[tuple[Position | Start, list[int]]] = [
        (Start.TRIM_HORIZON, [0, 1, 2, 3]),
        (second, [2, 3]),
        (last, []),
        (Start.LATEST, []),
    ]
    for after, expected in cases:
        pages = await table.read(tables, after, len(expected))
        expect_equal(numbers(records_of(pages)), expected, f"after {after}")


@check(0)
async def latest_of_a_table_sees_only_what_comes_later(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 1)
    iterator = await table.source.get_iterator(table.shard_id, Start.LATEST)
    await tables.set_number(name, "a", 7)
    page = await page_of_all(tables, table.source, iterator)
    expect_equal(numbers(page.records), [7])


@check(0)
async def a_start_by_time_skips_older_changes(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 1)
    await tables.pause(2.5)  # creation times are rounded down to the second
    await tables.set_number(name, "a", 1)
    both = records_of(await table.read(tables, Start.TRIM_HORIZON, 2))
    expect_equal(numbers(both), [0, 1])
    start = Start(type="AT_TIMESTAMP", timestamp=arrival(both[1]))
    pages = await table.read(tables, start, 1)
    expect_equal(numbers(records_of(pages)), [1])


@check(0)
async def a_page_of_a_table_holds_no_more_than_asked_for(
    tables: StreamedTables, name: str
) -> None:
    table = await one_item(tables, name, 5)
    iterator: str | None = await table.source.get_iterator(
        table.shard_id, Start.TRIM_HORIZON
    )
    found: list[Record] = []
    while len(found) < 5:
        expect(iterator is not None, "an open shard has ended")
        await tables.pause()
        page = await table.source.get_records(iterator or "", 2)
        expect(len(page.records) <= 2, f"{len(page.records)} records, 2 asked for")
        found += page.records
        iterator = page.next_iterator
    expect_equal(numbers(found), [0, 1, 2, 3, 4])


# --- reading --------------------------------------------------------------------------


class OneItem(NamedTuple):
    """The shard of a table's only item, and the records of its changes."""

    source: TableStreamSource
    shard_id: str
    records: list[Record]

    async def read(
        self, tables: StreamedTables, after: Position | Start, at_least: int = 0
    ) -> list[Page]:
        """Read the shard. See ``source.read()``."""
        return await read(tables, self.source, self.shard_id, after, at_least)


async def one_item(tables: StreamedTables, name: str, count: int) -> OneItem:
    """Create a table, and change its item ``a`` so often: ``n`` is 0, 1 and so on."""
    await tables.create_streamed(name)
    source = await tables.source(name)
    for number in range(count):
        await tables.set_number(name, "a", number)
    found = await records_by_shard(tables, source, count)
    [(shard_id, records)] = [each for each in found.items() if each[1]]
    return OneItem(source, shard_id, records)


async def list_shards(source: TableStreamSource) -> list[Shard]:
    """List the shards. The checks may call more often than AWS permits."""
    return await RETRIES.call(source.list_shards)


async def records_by_shard(
    tables: StreamedTables, source: TableStreamSource, at_least: int
) -> dict[str, list[Record]]:
    """Read all shards, in the order of the listing, until they have enough records."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while True:
        found: dict[str, list[Record]] = {}
        for shard in await list_shards(source):
            pages = await read(tables, source, shard.shard_id, Start.TRIM_HORIZON)
            found[shard.shard_id] = records_of(pages)
        if sum(map(len, found.values())) >= at_least or time.monotonic() > deadline:
            return found
        await tables.pause()


async def changes(
    tables: StreamedTables, source: TableStreamSource, at_least: int
) -> list[Change]:
    """Return the changes of all shards. Those of an item are in order."""
    found = await records_by_shard(tables, source, at_least)
    return [record.change for records in found.values() for record in records]


def item(key: str, **values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return an item in DynamoDB's JSON."""
    return {"id": {"S": key}, **values}


def keys(found: list[Change]) -> list[str]:
    """Return the partition keys of changes."""
    return [change.keys["id"] for change in found]


def numbers(records: Iterable[Record]) -> list[int]:
    """Return the attributes ``n`` of changed items."""
    return [_image(record)["n"] for record in records]


def _image(record: Record) -> Mapping[str, Any]:
    image = record.change.new_image
    if image is None:
        raise CheckFailedError(f"record {record.sequence_number} has no new image")
    return image


async def read_to_end(
    tables: StreamedTables, source: TableStreamSource, iterator: str
) -> list[Page]:
    """Read from an iterator to the end of its shard."""
    pages = [await read_page(tables, source, iterator)]
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while (following := pages[-1].next_iterator) and time.monotonic() < deadline:
        pages.append(await read_page(tables, source, following))
    return pages
