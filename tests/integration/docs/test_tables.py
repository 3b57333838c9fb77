"""Test that the examples of the guides to tables' streams run as printed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from pyarrow import parquet

from kinesumer import Record
from kinesumer.testing import EmbeddedAws
from tests.support.doc_pages import snippet
from tests.support.snippets import evaluated, play


class Customers:
    """The table "customers", and what a snippet did with its changes."""

    def __init__(self, dynamodb: Any) -> None:
        self._dynamodb = dynamodb
        self.seen: list[Any] = []
        self.enough = asyncio.Event()

    def note(self, *values: Any) -> None:
        """Note what a snippet prints, and end it after four changes."""
        self.seen.append(values)
        if len(self.seen) == 4:
            self.enough.set()

    def change(self) -> None:
        """Insert two items, change one, and remove the other."""
        for item in ({"name": {"S": "Ada"}}, {"name": {"S": "Bob"}}):
            key = {"id": {"S": item["name"]["S"][0].lower()}}
            self._dynamodb.put_item(TableName="customers", Item=key | item)
        self._dynamodb.put_item(
            TableName="customers", Item={"id": {"S": "a"}, "name": {"S": "Eve"}}
        )
        self._dynamodb.delete_item(TableName="customers", Key={"id": {"S": "b"}})


@pytest.fixture
def customers(aws: EmbeddedAws) -> Customers:
    dynamodb: Any = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName="customers",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={
            "StreamEnabled": True,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    )
    table = Customers(dynamodb)
    table.change()
    return table


async def test_the_changes_of_items(customers: Customers) -> None:
    text = snippet("docs/table-streams.md", '["orders", Stream(table="customers")]')
    await play(text, {"print": customers.note}, customers.enough)
    assert customers.seen == [
        ("INSERT", {"id": "a"}, {"id": "a", "name": "Ada"}),
        ("INSERT", {"id": "b"}, {"id": "b", "name": "Bob"}),
        ("MODIFY", {"id": "a"}, {"id": "a", "name": "Eve"}),
        ("REMOVE", {"id": "b"}, None),
    ]


async def test_typed_items(customers: Customers) -> None:
    text = snippet("docs/table-streams.md", "decode=Customer")
    await play(text, {"print": customers.note}, customers.enough)
    assert [name for _, name in customers.seen] == ["Ada", "Bob", "Eve", "Bob"]


async def test_a_search_index(customers: Customers) -> None:
    class Search:
        """An index in memory."""

        def __init__(self) -> None:
            self.documents: dict[str, Any] = {}

        async def put(self, document: str, item: Any) -> None:
            self.documents[document] = item
            customers.note()

        async def delete(self, document: str) -> None:
            del self.documents[document]
            customers.note()

    text = snippet("docs/table-streams.md", "search.delete(document)")
    search = Search()
    await play(text, {"search": search}, customers.enough)
    assert search.documents == {'{"id":"a"}': {"id": "a", "name": "Eve"}}


async def test_a_cache(customers: Customers) -> None:
    class Cache(dict[str, str]):
        """A cache that counts what is removed."""

        def pop(self, *key: Any) -> Any:
            customers.note()
            return super().pop(*key)

    cache = Cache(a="old", b="old", c="kept")
    text = snippet("docs/table-streams.md", "cache.pop(record")
    await play(text, {"cache": cache}, customers.enough)
    assert cache == {"c": "kept"}


def audited() -> list[bytes]:
    """Return the data of all files."""
    tables = [parquet.read_table(file) for file in Path("audit").glob("*.parquet")]
    return [data for table in tables for data in table["data"].to_pylist()]


@pytest.fixture
def folder(customers: Customers) -> None:
    Path("audit").mkdir()


@pytest.mark.usefixtures("folder")
async def test_an_audit_log(customers: Customers) -> None:
    text = snippet("docs/table-streams.md", "parquet.write_table")
    task = asyncio.ensure_future(play(text, {}, customers.enough))
    async with asyncio.timeout(30):
        while len(data := audited()) < 4:
            await asyncio.sleep(0.05)
    customers.enough.set()
    await task
    kinds = [msgspec.json.decode(each)["eventName"] for each in data]
    assert kinds == ["INSERT", "INSERT", "MODIFY", "REMOVE"]


async def test_the_time_of_a_change_in_a_kinesis_stream() -> None:
    names: dict[str, Any] = {}
    await evaluated(snippet("docs/table-streams-or-kinesis.md", "changed_at"), names)
    data = b'{"dynamodb": {"ApproximateCreationDateTime": 1569620331123}}'
    assert names["changed_at"](Record("1", data)) == 1569620331123
