"""Test that each fault has its documented effect, and only on its target."""

from __future__ import annotations

import random
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, HTTPClientError

from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.faults import Call, Fault, Faults
from tests.integration.testing.embedded_aws.conftest import iterator, refused

CALL = Call(
    "kinesis",
    "GetRecords",
    "arn:aws:kinesis:us-east-1:000000000000:stream/orders",
    "shardId-000000000001",
    "000000000000",
    access_key="test",
    user_agent="aiobotocore client-7",
)
KEY = {"pk": {"S": "a"}, "sk": {"S": "b"}}


@pytest.mark.parametrize(
    ("which", "is_struck"),
    [
        ({}, True),
        ({"service": "kinesis", "operation": "Get*"}, True),
        ({"service": "kinesis", "operation": "PutRecord"}, False),
        ({"service": "dynamodb"}, False),
        ({"resource": "orders"}, True),
        ({"resource": "arn:*:stream/orders"}, True),
        ({"resource": "order"}, False),
        ({"shard": "*0001"}, True),
        ({"shard": "*0002"}, False),
        ({"access_key": "test"}, True),
        ({"access_key": "other"}, False),
        ({"account": "000000000000"}, True),
        ({"user_agent": "client-7"}, True),
        ({"user_agent": "client-8"}, False),
    ],
)
def test_a_fault_strikes_only_what_all_its_patterns_match(
    which: dict[str, Any], is_struck: bool
) -> None:
    faults = Faults(random.Random(1))
    faults.add(Fault(kind="throttle", **which), 0.0)
    assert bool(faults.strike(CALL, 0.0)) is is_struck


def test_a_fault_ends_by_count_by_time_and_by_hand() -> None:
    faults = Faults(random.Random(1))
    faults.add(Fault(kind="error", count=2), 0.0)
    assert [len(faults.strike(CALL, 0.0)) for _ in range(3)] == [1, 1, 0]
    faults.add(Fault(kind="error", seconds=5), 10.0)
    assert faults.strike(CALL, 14.9)
    assert not faults.strike(CALL, 15.0)
    number = faults.add(Fault(kind="error"), 20.0)
    assert list(faults.active(20.0)) == [number]
    faults.remove(number)
    assert not faults.strike(CALL, 20.0)


def test_a_probable_fault_strikes_about_as_often_as_it_says() -> None:
    faults = Faults(random.Random(1))
    faults.add(Fault(kind="error", probability=0.25), 0.0)
    times = sum(bool(faults.strike(CALL, 0.0)) for _ in range(1000))
    assert 200 < times < 300


async def test_throttling_speaks_each_services_language(
    aws: EmbeddedAws, kinesis: Any, dynamodb: Any, connect: Any
) -> None:
    aws.create_stream("orders")
    aws.create_table("table")
    aws.fault("throttle")
    put = kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    get = dynamodb.get_item(TableName="table", Key=KEY)
    for call in (put, get):
        answer = await refused(call)
        assert answer.code == "ProvisionedThroughputExceededException"
    answer = await refused(kinesis.list_shards(StreamName="orders"))
    assert answer.code == "LimitExceededException"
    sts = await connect("sts")
    assert (await refused(sts.get_caller_identity())).code == "Throttling"


async def test_errors_are_500s_and_apply_nothing(
    aws: EmbeddedAws, kinesis: Any, dynamodb: Any
) -> None:
    aws.create_table("table")
    aws.fault("error", count=2)
    answer = await refused(kinesis.list_streams())
    assert (answer.code, answer.status) == ("InternalFailureException", 500)
    answer = await refused(dynamodb.put_item(TableName="table", Item=KEY))
    assert (answer.code, answer.status) == ("InternalServerError", 500)
    assert "Item" not in await dynamodb.get_item(TableName="table", Key=KEY)


async def test_a_dropped_answer_was_applied_and_a_refused_call_was_not(
    aws: EmbeddedAws, dynamodb: Any
) -> None:
    aws.create_table("table")
    for kind, applied in (("refuse", False), ("drop", True)):
        aws.clear_faults()
        aws.fault(kind, operation="PutItem")  # type: ignore[arg-type]
        with pytest.raises((ConnectionClosedError, HTTPClientError)):
            await dynamodb.put_item(TableName="table", Item=KEY)
        answer = await dynamodb.get_item(TableName="table", Key=KEY)
        assert ("Item" in answer) == applied
    errors = [c.error for c in aws.journal.counts() if c.operation == "PutItem"]
    assert sorted(error or "" for error in errors) == ["dropped", "refused"]


async def test_a_page_can_be_empty_although_there_are_records(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    aws.put("orders", b"x")
    aws.advance(10)
    place = await iterator(kinesis)
    aws.fault("empty_page", count=1)
    page = await kinesis.get_records(ShardIterator=place)
    assert page["Records"] == []
    assert page["MillisBehindLatest"] == pytest.approx(10_000, abs=2)
    page = await kinesis.get_records(ShardIterator=page["NextShardIterator"])
    assert [record["Data"] for record in page["Records"]] == [b"x"]


async def test_latency_delays_one_call_and_not_the_others(
    aws: EmbeddedAws, connect: Any
) -> None:
    aws.create_stream("orders")
    aws.fault("latency", operation="ListShards", latency_seconds=30)
    kinesis = await connect("kinesis", read_timeout=0.3)
    with pytest.raises(HTTPClientError):
        await kinesis.list_shards(StreamName="orders")
    await kinesis.describe_stream(StreamName="orders")


async def test_a_key_that_cannot_be_used_stops_records_only(
    aws: EmbeddedAws, kinesis: Any
) -> None:
    aws.create_stream("orders")
    aws.put("orders", b"a", "key")
    aws.fault("key", resource="orders", key_error="KMSInvalidStateException")
    [shard] = (await kinesis.list_shards(StreamName="orders"))["Shards"]
    answer = await kinesis.get_shard_iterator(
        StreamName="orders", ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )
    iterator = answer["ShardIterator"]
    read = kinesis.get_records(ShardIterator=iterator)
    put = kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
    for call in (read, put):
        assert (await refused(call)).code == "KMSInvalidStateException"
    aws.clear_faults()
    answer = await kinesis.get_records(ShardIterator=iterator)
    assert [record["Data"] for record in answer["Records"]] == [b"a"]
