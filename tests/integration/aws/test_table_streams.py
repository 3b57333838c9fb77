"""Test the calls of DynamoDB Streams: requests, and what the errors become."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source, open_reading_source
from kinesumer.aws.table_streams import OwnRows, TableStreamSource
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
    KinesumerError,
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    StartInFutureError,
    StreamMissingError,
    StreamRecreatedError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, Stream
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

TABLE_ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/customers"
ARN = f"{TABLE_ARN}/stream/2026-01-31T12:00:00.123"
SHARD = "shardId-00000001414576573621-f55eea83"
CHILD = "shardId-00000001414592258131-8acfabd5"
ENABLED = {
    "LatestStreamArn": ARN,
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
}


def described(*shards: dict[str, Any], **fields: object) -> dict[str, Any]:
    description = {
        "StreamArn": ARN,
        "StreamStatus": "ENABLED",
        "CreationRequestDateTime": 7.5,
        "Shards": shards,
    }
    return {"StreamDescription": description | fields}


def table(**fields: object) -> dict[str, Any]:
    return {"Table": {"TableName": "customers", **fields}}


@pytest_asyncio.fixture(loop_scope="module")
async def source(aws: AwsStub, clients: ClientFactory) -> TableStreamSource:
    """Return a source that was opened by the ARN of the stream."""
    opened = await open_polled_source(clients, Stream(ARN))
    assert isinstance(opened, TableStreamSource)
    return opened


async def test_a_table_is_described_to_find_its_latest_stream(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.answer("DescribeTable", table(**ENABLED))
    aws.answer("DescribeStream", described())
    source = await open_reading_source(clients, Stream(table="customers"))
    info = await source.describe()
    assert (info.arn, info.created_at) == (ARN, 7.5)
    assert abs(info.now - datetime.now(UTC).timestamp()) < 60
    assert [(seen.operation, seen.body) for seen in aws.seen] == [
        ("DescribeTable", {"TableName": "customers"}),
        ("DescribeStream", {"StreamArn": ARN, "Limit": 1}),
    ]
    target = aws.seen[1].headers["X-Amz-Target"]
    assert target == "DynamoDBStreams_20120810.DescribeStream"
    assert aws.seen[1].headers["Content-Type"] == "application/x-amz-json-1.0"


async def test_a_stream_by_arn_needs_no_description_of_its_table(
    aws: AwsStub, source: TableStreamSource
) -> None:
    aws.answer("DescribeStream", described(StreamStatus="DISABLED"))
    assert (await source.describe()).status == "DISABLED"
    assert aws.count("DescribeTable") == 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"LatestStreamArn": ARN, "StreamSpecification": {"StreamEnabled": False}},
    ],
    ids=["never", "disabled"],
)
async def test_a_table_without_a_stream_is_refused_with_what_enables_one(
    aws: AwsStub, clients: ClientFactory, fields: dict[str, object]
) -> None:
    aws.answer("DescribeTable", table(**fields))
    with pytest.raises(
        StreamMissingError, match=r"'customers' has no stream.*Enabled="
    ):
        await open_reading_source(clients, Stream(table="customers"))


async def test_a_table_that_does_not_exist_is_refused(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.refuse("DescribeTable", "ResourceNotFoundException")
    with pytest.raises(StreamMissingError, match="No table 'customers' in eu-west-1"):
        await open_reading_source(clients, Stream(table="customers"))


async def test_a_table_is_described_with_the_streams_role(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.assume_role(3600)
    aws.answer("DescribeTable", table(**ENABLED))
    aws.answer("DescribeStream", described())
    role = "arn:aws:iam::210987654321:role/reader"
    stream = Stream(table="customers", role_arn=role)
    await (await open_reading_source(clients, stream)).describe()
    for operation in ("DescribeTable", "DescribeStream"):
        assert [key[:4] for key in aws.keys(operation)] == ["ROLE"]


async def test_an_arn_of_another_region_is_refused(
    aws: AwsStub, clients: ClientFactory
) -> None:
    with pytest.raises(ConfigurationError, match="is in eu-west-1, not in us-east-1"):
        await open_reading_source(clients, Stream(ARN, region="us-east-1"))


async def test_a_new_stream_of_the_table_is_noticed(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.answer("DescribeTable", table(**ENABLED))
    source = await open_reading_source(clients, Stream(table="customers"))
    aws.forget("DescribeTable")
    aws.answer("DescribeTable", table(**ENABLED | {"LatestStreamArn": f"{ARN}4"}))
    aws.answer("DescribeStream", described(StreamStatus="DISABLED"))
    with pytest.raises(StreamRecreatedError, match="restart the client"):
        await source.describe()


async def test_the_pages_of_shards_are_listed_and_later_only_the_rest(
    aws: AwsStub, source: TableStreamSource
) -> None:
    one, two = {"ShardId": SHARD}, {"ShardId": CHILD, "ParentShardId": SHARD}
    aws.answer("DescribeStream", described(one, LastEvaluatedShardId=SHARD))
    aws.answer("DescribeStream", described(two))
    aws.answer("DescribeStream", described(one, LastEvaluatedShardId=SHARD))
    aws.answer("DescribeStream", described())
    for _ in range(2):
        assert [s.shard_id for s in await source.list_shards()] == [SHARD, CHILD]
    asked = [seen.body.get("ExclusiveStartShardId") for seen in aws.seen]
    assert asked == [None, SHARD, None, CHILD]


@pytest.mark.parametrize(
    ("after", "arguments"),
    [
        (Start.TRIM_HORIZON, {"ShardIteratorType": "TRIM_HORIZON"}),
        (Start.LATEST, {"ShardIteratorType": "LATEST"}),
        (
            Start(type="AT_TIMESTAMP", timestamp=7.25),
            {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": 7.25},
        ),
        (
            Position("111"),
            {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "111"},
        ),
    ],
)
async def test_an_iterator_is_requested_and_its_page_read(
    aws: AwsStub,
    source: TableStreamSource,
    after: Position | Start,
    arguments: dict[str, object],
) -> None:
    aws.answer("GetShardIterator", {"ShardIterator": "here"})
    aws.answer("GetRecords", {"Records": [], "NextShardIterator": "there"})
    iterator = await source.get_iterator(SHARD, after)
    page = await source.get_records(iterator, 10_000)
    assert page.next_iterator is not None
    await source.get_records(page.next_iterator, 10)
    assert [seen.body for seen in aws.seen] == [
        {"StreamArn": ARN, "ShardId": SHARD, **arguments},
        {"ShardIterator": "here", "Limit": 1000},
        {"ShardIterator": "there", "Limit": 10},
    ]


async def test_a_service_without_times_reads_all_and_skips(
    aws: AwsStub, source: TableStreamSource
) -> None:
    aws.refuse(
        "GetShardIterator",
        "ValidationException",
        "1 validation error detected: Value 'AT_TIMESTAMP' at 'shardIteratorType' "
        "failed to satisfy constraint: Member must satisfy enum value set: [LATEST]",
    )
    aws.answer("GetShardIterator", {"ShardIterator": "here"})
    records = [
        {
            "dynamodb": {
                "SequenceNumber": str(100 + at),
                "Keys": {"id": {"S": "c-1"}},
                "ApproximateCreationDateTime": at,
            }
        }
        for at in (6, 7, 8)
    ]
    aws.answer("GetRecords", {"Records": records, "NextShardIterator": "there"})
    start = Start(type="AT_TIMESTAMP", timestamp=7.0)
    for _ in range(2):
        page = await source.get_records(await source.get_iterator(SHARD, start), 10)
        assert [each.sequence_number for each in page.records] == ["107", "108"]
    kinds = [
        seen.body["ShardIteratorType"]
        for seen in aws.seen
        if seen.operation == "GetShardIterator"
    ]
    assert kinds == ["AT_TIMESTAMP", "TRIM_HORIZON", "TRIM_HORIZON"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ExpiredIteratorException", ExpiredIteratorError),
        ("TrimmedDataAccessException", TrimmedPositionError),
        ("LimitExceededException", ShardThrottledError),
        ("ProvisionedThroughputExceededException", ShardThrottledError),
        ("ThrottlingException", ShardThrottledError),
        ("InternalServerError", SourceUnavailableError),
        ("AccessDeniedException", AccessDeniedError),
        ("ValidationException", FatalError),
    ],
)
async def test_each_error_of_a_read_has_its_meaning(
    aws: AwsStub, source: TableStreamSource, code: str, error: type[KinesumerError]
) -> None:
    aws.answer("GetShardIterator", {"ShardIterator": "here"})
    aws.refuse("GetRecords", code, "some text")
    iterator = await source.get_iterator(SHARD, Start.LATEST)
    with pytest.raises(error) as raised:
        await source.get_records(iterator, 10)
    assert type(raised.value) is error
    assert "dynamodb:GetRecords" in str(raised.value)
    assert ARN in str(raised.value)


@pytest.mark.parametrize(
    ("after", "code", "error"),
    [
        (Position("5"), "ValidationException", InvalidPositionError),
        (Position("5"), "TrimmedDataAccessException", TrimmedPositionError),
        (Position("5"), "LimitExceededException", SourceThrottledError),
        (
            Start.at(datetime(2026, 1, 31, tzinfo=UTC)),
            "ValidationException",
            StartInFutureError,
        ),
        (Start.LATEST, "InternalServerError", SourceUnavailableError),
    ],
)
async def test_each_error_of_an_iterator_has_its_meaning(
    aws: AwsStub,
    source: TableStreamSource,
    after: Position | Start,
    code: str,
    error: type[KinesumerError],
) -> None:
    aws.answer("DescribeStream", described({"ShardId": SHARD}))
    aws.refuse("GetShardIterator", code, "some text")
    with pytest.raises(error) as raised:
        await source.get_iterator(SHARD, after)
    assert type(raised.value) is error


async def test_a_missing_shard_is_not_a_missing_stream(
    aws: AwsStub, source: TableStreamSource
) -> None:
    aws.refuse("GetShardIterator", "ResourceNotFoundException")
    aws.answer("DescribeStream", described())
    with pytest.raises(ShardMissingError):
        await source.get_iterator(SHARD, Start.LATEST)
    aws.forget("DescribeStream")
    aws.refuse("DescribeStream", "ResourceNotFoundException")
    with pytest.raises(StreamMissingError, match="deleted a day after it was disabled"):
        await source.get_iterator(SHARD, Start.LATEST)


async def test_an_answer_of_another_service_is_no_description(
    aws: AwsStub, source: TableStreamSource
) -> None:
    aws.answer_raw("DescribeStream", b"<html>")
    with pytest.raises(SourceUnavailableError, match="isn't from AWS"):
        await source.describe()


def row_change(number: int, pk: str) -> dict[str, Any]:
    keys = {"pk": {"S": pk}, "sk": {"S": "x"}}
    return {"dynamodb": {"SequenceNumber": str(number), "Keys": keys}}


@pytest.mark.parametrize(
    ("stored_arn", "expected"),
    [(TABLE_ARN, ["2"]), (TABLE_ARN.replace("1234", "9999"), ["1", "2"])],
    ids=["the state store", "another account's"],
)
async def test_an_app_gets_no_changes_of_its_own_rows(
    aws: AwsStub, clients: ClientFactory, stored_arn: str, expected: list[str]
) -> None:
    aws.answer("DescribeTable", table(**ENABLED))
    aws.answer("DescribeTable", table(TableArn=stored_arn))
    aws.answer("GetShardIterator", {"ShardIterator": "here"})
    changes = [row_change(1, "member#billing"), row_change(2, "member#other")]
    aws.answer("GetRecords", {"Records": changes, "NextShardIterator": "there"})
    own = OwnRows("billing", "customers")
    source = await open_reading_source(clients, Stream(table="customers"), own=own)
    page = await source.get_records(await source.get_iterator(SHARD, Start.LATEST), 10)
    assert [each.sequence_number for each in page.records] == expected
