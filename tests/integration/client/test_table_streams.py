"""Test the stream of a table from DynamoDB to user code, beside a Kinesis stream."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from pydantic import BaseModel

from kinesumer import (
    Change,
    Config,
    Kinesumer,
    Record,
    RetryPolicy,
    Start,
    Stream,
    StreamMissingError,
    StreamRecreatedError,
)
from kinesumer.config import STATE_STORE
from kinesumer.testing import EmbeddedAws, TableStreamSettings

CUSTOMERS = Stream(table="customers")
VIEW = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


class Customer(msgspec.Struct):
    """An item of the table, and a record of the Kinesis stream."""

    id: str
    visits: int


class Table:
    """The table "customers"."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.dynamodb: Any = boto3.client("dynamodb")

    def create(self, partitions: int = 2, **options: Any) -> Table:
        """Create the table with a stream."""
        settings = TableStreamSettings(partitions=partitions)
        self.aws.table_streams.settings = settings
        self.dynamodb.create_table(
            TableName="customers",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            **({"StreamSpecification": VIEW} | options),
        )
        return self

    def put(self, visits: int, *names: str) -> None:
        """Write a version of each item."""
        for name in names or ("a", "b", "c", "d", "e", "f"):
            item = {"id": {"S": name}, "visits": {"N": str(visits)}}
            self.dynamodb.put_item(TableName="customers", Item=item)

    def set_stream(self, *, enabled: bool) -> None:
        """Enable or disable the stream."""
        view = VIEW if enabled else {"StreamEnabled": False}
        self.dynamodb.update_table(TableName="customers", StreamSpecification=view)


@pytest.fixture
def table(kinesumer_aws: EmbeddedAws) -> Table:
    return Table(kinesumer_aws).create()


async def take(count: int, *streams: Any, app: str = "app", **options: Any) -> Any:
    """Return so many records, which one client consumes."""
    async with asyncio.timeout(30), Kinesumer(app) as client:
        options = {"start": Start.TRIM_HORIZON, **options}
        records = client.consume(list(streams or [CUSTOMERS]), limit=count, **options)
        return [record async for record in records]


def visits_of(record: Record[Any]) -> int:
    """Return the item's new version."""
    image = record.change.new_image
    assert image is not None
    return int(image["visits"])


async def test_a_record_tells_the_change_of_an_item(table: Table) -> None:
    table.put(1, "a")
    table.put(2, "a")
    table.dynamodb.delete_item(TableName="customers", Key={"id": {"S": "a"}})
    records = await take(3)
    new, newer = {"id": "a", "visits": 1}, {"id": "a", "visits": 2}
    assert [record.change for record in records] == [
        Change("INSERT", {"id": "a"}, new, None),
        Change("MODIFY", {"id": "a"}, newer, new),
        Change("REMOVE", {"id": "a"}, None, newer),
    ]
    [record, *_] = records
    assert (record.stream, record.partition_key) == ("table/customers", '{"id":"a"}')
    assert record.stream_arn == table.aws.table_streams.arn("customers")
    assert msgspec.json.decode(record.data)["eventName"] == "INSERT"
    assert record.arrived_at is not None


async def test_items_decode_as_a_type_beside_the_records_of_a_kinesis_stream(
    table: Table,
) -> None:
    table.aws.create_stream("orders", 1)
    table.aws.put("orders", b'{"id": "order", "visits": 0}')
    table.put(7, "a")
    records = await take(2, CUSTOMERS, "orders", decode=Customer)
    assert {record.stream: record.value for record in records} == {
        "orders": Customer("order", 0),
        "table/customers": Customer("a", 7),
    }


class Product(msgspec.Struct):
    """An item with attributes of many types."""

    id: str
    price: Decimal
    weight: float
    sizes: set[int]
    photo: bytes


@dataclass
class ProductData:
    """The same as a dataclass."""

    id: str
    price: Decimal
    weight: float
    sizes: set[int]
    photo: bytes


class ProductModel(BaseModel):
    """The same as a Pydantic model."""

    id: str
    price: Decimal
    weight: float
    sizes: set[int]
    photo: bytes


@pytest.mark.parametrize("kind", [Product, ProductData, ProductModel])
async def test_attributes_of_all_types_decode_from_the_new_and_the_removed_image(
    table: Table, kind: type[Any]
) -> None:
    item = {
        "id": {"S": "a"},
        "price": {"N": "19.90"},
        "weight": {"N": "2.5"},
        "sizes": {"NS": ["38", "40"]},
        "photo": {"B": b"\x00\xff"},
    }
    table.dynamodb.put_item(TableName="customers", Item=item)
    table.dynamodb.delete_item(TableName="customers", Key={"id": {"S": "a"}})
    expected = kind(
        id="a", price=Decimal("19.90"), weight=2.5, sizes={38, 40}, photo=b"\x00\xff"
    )
    records = await take(2, decode=kind)
    assert [record.change.kind for record in records] == ["INSERT", "REMOVE"]
    assert [record.value for record in records] == [expected, expected]


async def test_positions_are_stored_over_roll_overs_and_splits(table: Table) -> None:
    seen: list[Record[Any]] = []
    for visits in range(6):
        table.put(visits)
        seen += await take(6)
        shard, *_ = table.aws.table_streams.open_shards("customers")
        if visits == 3:
            table.aws.table_streams.split("customers", shard)
        else:
            table.aws.table_streams.roll_over("customers")
    versions = [visits_of(record) for record in seen]
    assert versions == sorted([*range(6)] * 6)


async def test_columns_have_the_keys_and_the_raw_json(table: Table) -> None:
    table.put(1)
    async with asyncio.timeout(30), Kinesumer("app") as client:
        records = client.consume([CUSTOMERS], start=Start.TRIM_HORIZON, limit=6)
        batches = [batch async for batch in records.batches(columns=True)]
    keys = sorted(key for batch in batches for key in batch.partition_key.to_pylist())
    assert keys == [f'{{"id":"{name}"}}' for name in "abcdef"]
    data = [each.as_py() for batch in batches for each in batch.data]
    assert all(each.startswith(b'{"eventID"') for each in data)


async def test_concurrent_calls_keep_the_order_of_an_item_and_failed_ones_are_letters(
    table: Table, tmp_path: Path
) -> None:
    for visits in range(5):
        table.put(visits)
    seen: defaultdict[str, list[int]] = defaultdict(list)
    done = asyncio.Event()

    async def handle(record: Record) -> None:
        change = record.change
        assert change.new_image is not None
        if (change.keys["id"], change.new_image["visits"]) == ("c", 2):
            raise ValueError("this version is not wanted")
        await asyncio.sleep(0.001)
        seen[change.keys["id"]].append(change.new_image["visits"])
        if sum(map(len, seen.values())) == 29:
            done.set()

    letters = tmp_path / "letters.jsonl"
    async with asyncio.timeout(30), Kinesumer("app") as client:
        running = asyncio.create_task(
            client.run(
                [CUSTOMERS],
                handle,
                start=Start.TRIM_HORIZON,
                concurrency=8,
                retries=RetryPolicy(max_attempts=1),
                dead_letters=f"file:{letters}",
            )
        )
        await done.wait()
        await client.leave()
        await running
    versions = [0, 1, 2, 3, 4]
    assert seen == dict.fromkeys("abdef", versions) | {"c": [0, 1, 3, 4]}
    [letter] = letters.read_text().splitlines()
    assert msgspec.json.decode(letter)["partition_key"] == '{"id":"c"}'


async def test_acknowledged_records_are_not_delivered_again(table: Table) -> None:
    table.put(1)
    config = Config(commit="manual")
    async with asyncio.timeout(30), Kinesumer("app", config=config) as client:
        async for record in client.consume([CUSTOMERS], start="TRIM_HORIZON", limit=6):
            if record.change.keys["id"] in "ab":
                client.ack(record)
    table.put(2, "a")
    again = await take(5)
    names = [record.change.keys["id"] for record in again]
    assert sorted(names) == ["a", "c", "d", "e", "f"]


async def test_a_table_without_a_stream_is_refused(kinesumer_aws: EmbeddedAws) -> None:
    table = Table(kinesumer_aws).create(StreamSpecification={"StreamEnabled": False})
    with pytest.raises(StreamMissingError, match="'customers' has no stream"):
        await take(1)
    table.set_stream(enabled=True)
    table.put(1, "a")
    assert len(await take(1)) == 1


async def test_a_stream_that_is_enabled_again_ends_the_client_and_is_read_after_that(
    table: Table,
) -> None:
    table.put(1)
    config = Config(listing_interval_seconds=1.0)
    seen = []
    async with asyncio.timeout(60), Kinesumer("app", config=config) as client:
        with pytest.raises(StreamRecreatedError, match="restart the client"):
            async for record in client.consume([CUSTOMERS], start="TRIM_HORIZON"):
                seen.append(record)
                if len(seen) == 6:
                    table.set_stream(enabled=False)
                    table.set_stream(enabled=True)
                    table.put(2)
    assert len(seen) == 6
    records = await take(6)
    assert {visits_of(record) for record in records} == {2}


async def test_an_app_gets_only_other_apps_rows_from_its_state_stores_stream(
    kinesumer_aws: EmbeddedAws,
) -> None:
    dynamodb: Any = boto3.client("dynamodb")
    dynamodb.update_table(TableName=STATE_STORE, StreamSpecification=VIEW)
    kinesumer_aws.create_stream("orders", 1)
    kinesumer_aws.put("orders", b"x")
    await take(1, "orders", app="other")
    written = len(changed_rows(kinesumer_aws))
    records = await take(written, Stream(table=STATE_STORE))
    keys = [(r.change.keys["pk"], r.change.keys["sk"]) for r in records]
    assert len(changed_rows(kinesumer_aws)) > written
    assert keys == changed_rows(kinesumer_aws)[:written]
    assert not [pk for pk, sk in keys if pk.endswith("#app") or sk == "app"]


def changed_rows(aws: EmbeddedAws) -> list[tuple[str, str]]:
    """Return the keys of the state store's rows in the order of their changes."""
    streams: Any = boto3.client("dynamodbstreams")
    arn = aws.table_streams.arn(STATE_STORE)
    [shard] = aws.table_streams.open_shards(STATE_STORE)
    place = streams.get_shard_iterator(
        StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
    )
    found = streams.get_records(ShardIterator=place["ShardIterator"])["Records"]
    keys = [record["dynamodb"]["Keys"] for record in found]
    return [(key["pk"]["S"], key["sk"]["S"]) for key in keys]
