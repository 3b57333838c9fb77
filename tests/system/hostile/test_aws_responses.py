"""Test that invalid responses of AWS are temporary faults, and never crash a client."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.errors import CorruptRowError, KinesumerError, TransientError
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from kinesumer.wire.cbor import encode
from tests.support.aws_stub import (
    AwsStub,
    aws,
    clients,
    environment,
    shared_clients,
    stub,
)

__all__ = ["aws", "clients", "environment", "shared_clients", "stub"]

# The tests share the server and the clients of the imported fixtures.
pytestmark = pytest.mark.asyncio(loop_scope="module")

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
ITEM = {"pk": {"S": "p"}, "sk": {"S": "s"}, "beat": {"N": "3"}, "dead": {"BOOL": False}}
SUMMARY = {
    "StreamARN": ARN,
    "StreamName": "orders",
    "StreamStatus": "ACTIVE",
    "StreamCreationTimestamp": 1.7e9,
    "RetentionPeriodHours": 24,
    "MaxRecordSizeInKiB": 1024,
}
SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "5"},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
TABLE = {
    "TableStatus": "ACTIVE",
    "TableId": "t",
    "CreationDateTime": 1.7e9,
    "KeySchema": [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "LocalSecondaryIndexes": [],
}
ANSWERS: dict[str, dict[str, Any]] = {
    "GetItem": {"Item": ITEM},
    "Query": {"Items": [ITEM], "Count": 1},
    "UpdateItem": {"Attributes": ITEM},
    "DeleteItem": {},
    "DescribeTable": {"Table": TABLE},
    "DescribeStreamSummary": {"StreamDescriptionSummary": SUMMARY},
    "ListShards": {"Shards": [SHARD]},
    "GetShardIterator": {"ShardIterator": "AAA"},
    "GetRecords": {"Records": [], "MillisBehindLatest": 0},
}
RAW = [
    b"",
    b"null",
    b"[]",
    b"5",
    b"{}",
    b'"text"',
    b"<html>sign in</html>",
    b'{"Items":5}',
    b'{"Items":[5]}',
    b'{"Items":[{"pk":5}]}',
    b'{"Items":[{}]}',
    b'{"Item":[]}',
    b'{"Item":{"pk":"p"}}',
    b'{"Attributes":{"beat":{"N":"' + b"9" * 5000 + b'"}}}',
    b'{"Table":{}}',
    b'{"Table":null}',
    b'{"Shards":[{}]}',
    b'{"Shards":[null]}',
    b'{"StreamDescriptionSummary":{}}',
    b'{"StreamDescriptionSummary":{"StreamCreationTimestamp":"soon"}}',
    b"\xff\xfe",
    b"\xbf",
    b"\xa1gRecords\x9b" + b"\xff" * 8,
    b"\xa1gRecords\x9f\xa1dData\x5f",
    b"\xbf" + b"\x61a\xbf" * 20_000,
    b"\x9f" * 20_000,
    b"[" * 20_000,
    b'{"Items":' + b"[" * 20_000,
]
VALUES: list[Any] = [None, 5, -1, 1e300, "", "text", [], {}, [None], {"S": 5}, True]


def spoiled(seed: int) -> tuple[str, bytes]:
    """Return a response with one value replaced or removed."""
    chance = random.Random(seed)
    operation = chance.choice(sorted(ANSWERS))
    answer = deepcopy(ANSWERS[operation]) or {"Extra": 1}
    holder, name = chance.choice(list(_values(answer)))
    if chance.random() < 0.3:
        del holder[name]
    else:
        holder[name] = chance.choice(VALUES)
    # A source also reads answers in CBOR.
    encoders: list[Callable[[Any], bytes]] = [msgspec.json.encode, encode]
    return operation, chance.choice(encoders)(answer)


def _values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the container and the key or index of each nested value."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _values(value[key])


def calls(store: Any, source: Any) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return one function per AWS call, which makes the call and reads its result."""
    key, true = Key("p", "s"), Compare("pk", "exists")

    async def query() -> object:
        return [rows.read_liveness(row) for row in await store.query("p")]

    async def get() -> object:
        row = await store.get(key)
        return rows.read_member(row) if row else None

    return {
        "GetItem": get,
        "Query": query,
        "UpdateItem": lambda: store.write(Write(key, true, {"beat": 4})),
        "DeleteItem": lambda: store.write(Write(key, true, delete=True)),
        "DescribeTable": store.verify,
        "DescribeStreamSummary": source.describe,
        "ListShards": source.list_shards,
        "GetShardIterator": lambda: source.get_iterator("s", Start.LATEST),
        "GetRecords": lambda: source.get_records("AAA", 10),
    }


async def test_invalid_responses_are_temporary_faults(
    aws: AwsStub, clients: ClientFactory
) -> None:
    store = await open_store(clients, "table")
    source = await open_source(clients, Stream(ARN))
    by_operation = calls(store, source)
    for operation, call in by_operation.items():
        for body in RAW:
            await check(operation, body, aws, call)
    for body in RAW:
        index = lambda: store.query_not_updated_since("p", "2026")  # noqa: E731
        await check("Query", body, aws, index)
    for seed in range(160):
        operation, body = spoiled(seed)
        await check(operation, body, aws, by_operation[operation])


async def check(
    operation: str, body: bytes, aws: AwsStub, call: Callable[[], Awaitable[object]]
) -> None:
    """Make a call that gets this response. Only kinesumer's errors may be raised."""
    aws.forget(operation)
    aws.answer_raw(operation, body, 200)
    try:
        await call()
    except (TransientError, CorruptRowError) as error:
        assert len(str(error)) < 2000
    except KinesumerError as error:
        assert operation == "DescribeTable", (operation, body[:80], error)
    except Exception as error:
        error.add_note(f"{operation}: {body[:200]!r}")
        raise
