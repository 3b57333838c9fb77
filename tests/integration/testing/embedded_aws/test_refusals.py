"""Test that what AWS refuses is refused with AWS's code."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from kinesumer.testing import EmbeddedAws
from tests.integration.testing.embedded_aws.conftest import refused

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/"
CLOSED, OPEN, APART = (f"shardId-{number:012}" for number in (0, 3, 2))
ORDERS = {"StreamName": "orders"}
FIRST = ORDERS | {"ShardId": CLOSED}
RECORD = {"Data": b"x", "PartitionKey": "k"}
CONSUMER = f"{ARN}orders/consumer"
DRY = {"DryRun": True}
AUTO = {"RecordDistributionStrategy": "AUTO"}
UNIFORM = {"ScalingType": "UNIFORM_SCALING"}
FUTURE = 9e9


def subscription(**place: Any) -> dict[str, Any]:
    consumer = {"ConsumerARN": f"{CONSUMER}/billing:0", "ShardId": OPEN}
    return consumer | {"StartingPosition": place}


def after(number: str) -> dict[str, Any]:
    kind = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER"}
    return FIRST | kind | {"StartingSequenceNumber": number}


INVALID: list[tuple[str, dict[str, Any]]] = [
    ("describe_stream", {"StreamName": "other", "StreamARN": f"{ARN}orders"}),
    ("put_record", ORDERS | RECORD | {"ExplicitHashKey": "-1"}),
    ("put_record", ORDERS | RECORD | {"ExplicitHashKey": "x"}),
    ("put_record", ORDERS | RECORD | {"ExplicitHashKey": str(1 << 128)}),
    ("put_record", {"StreamName": "auto", "SequenceNumberForOrdering": "1"} | RECORD),
    ("get_shard_iterator", after("49" + "0" * 54)),
    ("get_shard_iterator", after("12")),
    ("get_shard_iterator", after("nonsense")),
    (
        "get_shard_iterator",
        FIRST | {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": FUTURE},
    ),
    ("get_records", {"ShardIterator": "nonsense"}),
    ("list_shards", {"NextToken": "nonsense"}),
    ("create_stream", {"StreamName": "even", "ShardCount": 1} | AUTO),
    (
        "update_stream_record_distribution_strategy",
        {"StreamARN": f"{ARN}orders"} | AUTO,
    ),
    ("get_records", {"ShardIterator": "AAAAAAAAWzFd"}),
    ("merge_shards", {"ShardToMerge": OPEN, "AdjacentShardToMerge": APART} | ORDERS),
    ("split_shard", ORDERS | {"ShardToSplit": CLOSED, "NewStartingHashKey": "1000"}),
    ("split_shard", ORDERS | {"ShardToSplit": OPEN, "NewStartingHashKey": "0"}),
    ("update_shard_count", ORDERS | UNIFORM | {"TargetShardCount": 9}),
    ("update_shard_count", ORDERS | UNIFORM | {"TargetShardCount": 1}),
    ("increase_stream_retention_period", ORDERS | {"RetentionPeriodHours": 23}),
    ("decrease_stream_retention_period", ORDERS | {"RetentionPeriodHours": 25}),
    ("describe_stream_consumer", {"StreamARN": f"{ARN}orders"}),
    ("subscribe_to_shard", subscription(Type="AT_SEQUENCE_NUMBER")),
    ("subscribe_to_shard", subscription(Type="AT_TIMESTAMP")),
    ("subscribe_to_shard", subscription(Type="AT_TIMESTAMP", Timestamp=FUTURE)),
]
NOT_VALID: list[tuple[str, dict[str, Any]]] = [
    ("put_record", ORDERS | {"Data": b"x"}),
    ("put_records", ORDERS | {"Records": [RECORD, {"Data": b"x"}]}),
    ("put_records", ORDERS | {"Records": [RECORD] * 501}),
    (
        "update_max_record_size",
        {"StreamARN": f"{ARN}orders", "MaxRecordSizeInKiB": 10_241},
    ),
    ("update_shard_count", {"StreamName": "auto", "TargetShardCount": 8} | UNIFORM),
    ("describe_stream_consumer", {"ConsumerARN": f"{ARN}orders"}),
    ("register_stream_consumer", {"StreamARN": f"{ARN}orders", "ConsumerName": "a b"}),
    ("subscribe_to_shard", subscription(Type="NEWEST")),
]
MISSING: list[tuple[str, dict[str, Any]]] = [
    ("describe_stream_summary", {"StreamName": "other"}),
    ("list_shards", {"StreamName": "other"}),
    ("put_record", {"StreamName": "other"} | RECORD),
    ("put_record", {"StreamName": "other"} | RECORD | DRY),
    (
        "subscribe_to_shard",
        subscription(Type="LATEST") | {"ConsumerARN": f"{CONSUMER}/billing:1"} | DRY,
    ),
    ("delete_stream", {"StreamName": "other"}),
    (
        "split_shard",
        ORDERS | {"ShardToSplit": "shardId-9", "NewStartingHashKey": "1"},
    ),
    ("list_stream_consumers", {"StreamARN": f"{ARN}other"}),
    ("deregister_stream_consumer", {"ConsumerARN": f"{CONSUMER}/billing:1"}),
]
REFUSED: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "InvalidArgumentException": INVALID,
    "ValidationException": NOT_VALID,
    "ResourceNotFoundException": MISSING,
    "ResourceInUseException": [
        ("create_stream", ORDERS | {"ShardCount": 1}),
        ("delete_stream", ORDERS),  # it has a consumer
    ],
    "LimitExceededException": [
        ("create_stream", {"StreamName": "large", "ShardCount": 10_001})
    ],
    "UnknownOperationException": [("list_channels", {})],
}


@pytest.mark.parametrize("code", REFUSED)
async def test_what_aws_refuses_is_refused_with_its_code(
    aws: EmbeddedAws, kinesis: Any, code: str
) -> None:
    arn = aws.create_stream("orders", 3)
    aws.split("orders", CLOSED)
    aws.create_stream("auto", mode="ON_DEMAND", distribution="AUTO")
    made = await kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="billing")
    for operation, given in REFUSED[code]:
        aws.advance(1)
        arguments = dict(given)
        if arguments.get("ConsumerARN", "").endswith("billing:0"):
            arguments["ConsumerARN"] = made["Consumer"]["ConsumerARN"]
        answer = await refused(getattr(kinesis, operation)(**arguments))
        assert (answer.code, answer.status) == (code, 400), (operation, given)


async def test_dynamodb_refuses_what_it_cannot_read(
    aws: EmbeddedAws, dynamodb: Any
) -> None:
    aws.create_table("table")
    key = {"pk": {"S": "a"}, "sk": {"S": "b"}}
    call = dynamodb.put_item(TableName="table", Item={"pk": {"S": "only"}})
    assert (await refused(call)).code == "ValidationException"
    call = dynamodb.update_item(
        TableName="table", Key=key, UpdateExpression="SET nonsense nonsense"
    )
    assert (await refused(call)).code == "ValidationException"
    call = dynamodb.describe_kinesis_streaming_destination(TableName="table")
    assert (await refused(call)).code == "UnknownOperationException"


async def test_a_request_of_another_service_is_refused_even_if_it_is_not_text(
    aws: EmbeddedAws,
) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(aws.url, data=b"\xbf\xff") as answer,
    ):
        assert answer.status == 403
        assert "<Code>MissingAuthenticationToken</Code>" in await answer.text()
