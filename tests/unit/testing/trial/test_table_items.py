"""Test how a trial puts numbered items, and finds their changes in the stream."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from kinesumer import Stream
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.table_streams import open_table_source
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.trial.acceptance.account import PREFIX
from kinesumer.testing.trial.journal import Entry, RecordCounts
from kinesumer.testing.trial.table_items import TableProducer, find_changes

TABLE = f"{PREFIX}-test"  # whose items the policy of acceptance permits to change
ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/customers/stream/2026"


class Table:
    """A table that takes only so many items of a batch."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.taken: list[str] = []

    async def batch_write_item(self, RequestItems: Any) -> Any:
        [(table, puts)] = RequestItems.items()
        items = [put["PutRequest"]["Item"] for put in puts]
        names = [item["id"]["S"] for item in items]
        assert len(names) == len(set(names))
        self.taken += [item["number"]["N"] for item in items[: self.takes]]
        return {"UnprocessedItems": {table: puts[self.takes :]}}


def entries(*names: str) -> list[Entry]:
    return [Entry([number], name, b"") for number, name in enumerate(names)]


async def test_an_item_is_in_a_batch_once_and_what_is_left_is_put_later() -> None:
    table, counts = Table(takes=2), RecordCounts([ARN])
    producer = TableProducer(ARN, table, counts, pytest.fail)
    left = await producer.request(entries("a", "a", "b", "c", "a"))
    assert [entry.numbers for entry in left] == [[1], [3], [4]]
    assert table.taken == ["0", "2"]
    assert counts.waiting == {ARN: {0, 2}}
    assert counts.total == 2


async def test_changes_have_their_places_in_the_stream(
    kinesumer_aws: EmbeddedAws,
) -> None:
    dynamodb: Any = boto3.client("dynamodb")
    dynamodb.create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    )
    arn = kinesumer_aws.table_streams.arn(TABLE)
    counts = RecordCounts([arn])
    async with ClientFactory() as clients:
        opened = await clients.open("dynamodb")
        producer = TableProducer(arn, opened.client, counts, pytest.fail)
        assert await producer.request(entries("a", "b")) == []
        kinesumer_aws.table_streams.roll_over(TABLE)
        assert await producer.request([Entry([7], "a", b"")]) == []
        counts.add_written(arn, 8)
        source = await open_table_source(clients, Stream(table=TABLE))
        faults = await find_changes(source, counts)
    assert faults == ["1 changes aren't in the stream, one is 8"]
    assert counts.total == 3
    found = counts.produced
    assert [record.number for record in found] == [0, 1, 7]
    assert [record.key for record in found] == [
        '{"id":"a"}',
        '{"id":"b"}',
        '{"id":"a"}',
    ]
    assert found[0].shard == found[1].shard != found[2].shard
    assert found[0].position < found[2].position
