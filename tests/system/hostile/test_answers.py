"""What answers in the place of AWS: a fault that passes, never a crash."""

from __future__ import annotations

import json
import random
from collections import deque
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.errors import CorruptRowError, KinesumerError, TransientError
from kinesumer.model.rows import Key
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.integration.aws.conftest import aws, clients, environment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kinesumer.aws.session import ClientFactory
    from tests.integration.aws.stub import AwsStub

__all__ = ["aws", "clients", "environment"]

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
    b"[" * 20_000,
    b'{"Items":' + b"[" * 20_000,
]
SCRAPS: list[Any] = [None, 5, -1, 1e300, "", "text", [], {}, [None], {"S": 5}, True]
TOKENS = ("NextToken", "LastEvaluatedKey")


def spoiled(seed: int) -> tuple[str, bytes]:
    """Return an answer in which something else stands at one place."""
    chance = random.Random(seed)
    operation = chance.choice(sorted(ANSWERS))
    answer = deepcopy(ANSWERS[operation]) or {"Extra": 1}
    places = list(_places(answer))
    holder, name = chance.choice(places)
    if chance.random() < 0.3:
        del holder[name]
    else:
        holder[name] = chance.choice(SCRAPS)
    return operation, json.dumps(answer).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in a value where something stands."""
    found: list[tuple[Any, Any]] = []
    waiting = deque([value])
    while waiting:
        holder = waiting.popleft()
        pairs: list[tuple[Any, Any]] = (
            list(holder.items())
            if isinstance(holder, dict)
            else list(enumerate(holder))
        )
        for name, part in pairs:
            found.append((holder, name))
            if isinstance(part, dict | list):
                waiting.append(part)
    return found


def calls(store: Any, source: Any) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return a way to make each call, and to read what it gives."""
    key, true = Key("p", "s"), Compare("pk", "exists")

    async def query() -> object:
        found = await store.query("p")
        return [rows.read_liveness(row) for row in found]

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


async def test_answers_that_are_none_are_faults_that_pass(
    aws: AwsStub, clients: ClientFactory
) -> None:
    store = await open_store(clients, "table")
    source = await open_source(clients, Stream(ARN))
    wanted = calls(store, source)
    wanted["index"] = lambda: store.query_not_updated_since("p", "2026")
    for operation, call in wanted.items():
        for body in RAW:
            await check("Query" if operation == "index" else operation, body, aws, call)


@pytest.mark.parametrize("block", range(4))
async def test_answers_with_something_else_at_a_place_are_read_or_faults(
    aws: AwsStub, clients: ClientFactory, block: int
) -> None:
    store = await open_store(clients, "table")
    source = await open_source(clients, Stream(ARN))
    wanted = calls(store, source)
    for seed in range(60 * block, 60 * block + 60):
        operation, body = spoiled(seed)
        await check(operation, body, aws, wanted[operation])


async def check(
    operation: str, body: bytes, aws: AwsStub, call: Callable[[], Awaitable[object]]
) -> None:
    """Make a call that is answered so; only faults of ours may come of it."""
    aws.forget(operation)
    aws.answer_raw(operation, body, 200)
    try:
        await call()
    except (TransientError, CorruptRowError) as error:
        assert len(str(error)) < 2000
    except KinesumerError as error:
        assert operation in ("DescribeTable",), (operation, body[:80], error)
    except Exception as error:
        error.add_note(f"{operation}: {body[:200]!r}")
        raise
