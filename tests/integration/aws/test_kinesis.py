"""Test the stream source: its requests, and the errors of Kinesis."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.streams import parse_stream_name
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    ExpiredIteratorError,
    FatalError,
    InvalidPositionError,
    KeyDeniedError,
    KeyThrottledError,
    KeyUnavailableError,
    KinesumerError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    StartInFutureError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Shard, Start, Stream
from tests.support.aws_keys import ARN, SUMMARY
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

SHARD = "shardId-000000000000"


async def test_once_known_the_arn_is_sent_in_place_of_the_name(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.answer("ListShards", {"Shards": []})
    aws.answer("GetRecords", {"Records": [], "NextShardIterator": "next"})
    await source.list_shards()
    await source.describe()
    await source.list_shards()
    await source.get_records(f"{SHARD} iterator", 10)
    assert [seen.body for seen in aws.seen] == [
        {"StreamName": "orders"},
        {"StreamName": "orders"},
        {"StreamARN": ARN},
        {"StreamARN": ARN, "ShardIterator": "iterator", "Limit": 10},
    ]


async def test_a_stream_by_arn_is_never_asked_for_by_name(
    aws: AwsStub, clients: ClientFactory
) -> None:
    aws.answer("GetShardIterator", {"ShardIterator": "x"})
    source = await open_source(clients, Stream(ARN))
    assert await source.get_iterator(SHARD, Start.LATEST) == f"{SHARD} x"
    assert aws.seen[0].body["StreamARN"] == ARN
    assert "StreamName" not in aws.seen[0].body


@pytest.mark.parametrize(
    "stream",
    [
        Stream("a/b"),
        Stream("arn:aws:s3:::bucket"),
        Stream("arn:aws:kinesis:eu-west-1:123456789012:consumer/x"),
        Stream(ARN, region="us-east-1"),
    ],
)
async def test_what_names_no_stream_is_refused(
    aws: AwsStub, clients: ClientFactory, stream: Stream
) -> None:
    with pytest.raises(ConfigurationError):
        await open_source(clients, stream)


def test_an_arn_tells_name_and_region() -> None:
    assert parse_stream_name(ARN) == ("orders", "eu-west-1", ARN)
    assert parse_stream_name("orders") == ("orders", None, None)


# --- shards --------------------------------------------------------------------------


def _listed(number: int, **more: Any) -> dict[str, Any]:
    return {
        "ShardId": f"shardId-{number:012}",
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
        "SequenceNumberRange": {"StartingSequenceNumber": "1"},
        **more,
    }


async def test_a_listing_is_followed_to_its_end(
    aws: AwsStub, source: KinesisSource
) -> None:
    closed = {"StartingSequenceNumber": "1", "EndingSequenceNumber": "2"}
    first = _listed(0, SequenceNumberRange=closed)
    second = _listed(2, ParentShardId=SHARD, AdjacentParentShardId="shardId-1")
    aws.answer("ListShards", {"Shards": [first], "NextToken": "more"})
    aws.answer("ListShards", {"Shards": [second]})
    assert await source.list_shards() == [
        Shard(SHARD, 0, 2**128 - 1, (), ending_sequence_number="2"),
        Shard("shardId-000000000002", 0, 2**128 - 1, (SHARD, "shardId-1")),
    ]
    assert aws.seen[1].body == {"NextToken": "more"}


async def test_a_listing_whose_token_expires_starts_again(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer("ListShards", {"Shards": [_listed(0)], "NextToken": "old"})
    aws.refuse("ListShards", "ExpiredNextTokenException")
    aws.answer("ListShards", {"Shards": [_listed(0)], "NextToken": "new"})
    aws.answer("ListShards", {"Shards": [_listed(1)]})
    shards = await source.list_shards()
    assert [shard.shard_id[-1] for shard in shards] == ["0", "1"]


# --- iterators and pages -------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "arguments"),
    [
        (Start.LATEST, {"ShardIteratorType": "LATEST"}),
        (Start.TRIM_HORIZON, {"ShardIteratorType": "TRIM_HORIZON"}),
        (
            Position("77"),
            {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
                "StartingSequenceNumber": "77",
            },
        ),
        (
            Position("77", 3),
            {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": "77"},
        ),
    ],
)
async def test_an_iterator_is_asked_for_where_reading_goes_on(
    aws: AwsStub,
    source: KinesisSource,
    after: Position | Start,
    arguments: dict[str, object],
) -> None:
    aws.answer("GetShardIterator", {"ShardIterator": "x"})
    await source.get_iterator(SHARD, after)
    assert aws.seen[0].body == {"StreamName": "orders", "ShardId": SHARD, **arguments}


@pytest.mark.parametrize("moment", [1700000000.0, 1700000000.9996, 1699999999.0014])
async def test_a_start_by_time_may_be_early_by_a_millisecond_but_never_late(
    aws: AwsStub, source: KinesisSource, moment: float
) -> None:
    aws.answer("GetShardIterator", {"ShardIterator": "x"})
    await source.get_iterator(SHARD, Start(type="AT_TIMESTAMP", timestamp=moment))
    assert aws.seen[0].body["ShardIteratorType"] == "AT_TIMESTAMP"
    assert moment - 0.001 < aws.seen[0].body["Timestamp"] <= moment
    assert len(str(aws.seen[0].body["Timestamp"]).partition(".")[2]) <= 3


# --- faults --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("ProvisionedThroughputExceededException", 400, ShardThrottledError),
        ("LimitExceededException", 400, SourceThrottledError),
        ("Anything", 429, SourceThrottledError),
        ("InternalFailure", 500, SourceUnavailableError),
        ("InternalFailureException", 500, SourceUnavailableError),
        ("ServiceUnavailable", 503, SourceUnavailableError),
        ("Anything", 502, SourceUnavailableError),
        ("ExpiredIteratorException", 400, ExpiredIteratorError),
        ("AccessDeniedException", 400, AccessDeniedError),
        ("InvalidArgumentException", 400, FatalError),
    ],
)
async def test_an_error_of_kinesis_has_its_class(
    aws: AwsStub,
    source: KinesisSource,
    code: str,
    status: int,
    error: type[KinesumerError],
) -> None:
    aws.refuse("GetRecords", code, "what AWS says", status)
    with pytest.raises(error) as raised:
        await source.get_records("x", 10)
    assert type(raised.value) is error
    assert "orders" in str(raised.value)


async def test_a_denial_names_action_and_stream_and_why(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.refuse(
        "DescribeStreamSummary",
        "AccessDeniedException",
        "User: arn:aws:iam::123456789012:user/me is not authorized to perform: "
        f"kinesis:DescribeStreamSummary on resource: {ARN} because no identity-based "
        "policy allows the kinesis:DescribeStreamSummary action",
    )
    with pytest.raises(AccessDeniedError) as raised:
        await source.describe()
    assert str(raised.value) == (
        "access denied: kinesis:DescribeStreamSummary on orders: "
        "arn:aws:iam::123456789012:user/me is not authorized because no "
        "identity-based policy allows the kinesis:DescribeStreamSummary action; "
        "allow kinesis:DescribeStreamSummary on it for the credentials in use"
    )


@pytest.mark.parametrize(
    ("code", "error", "remedy"),
    [
        (
            "KMSAccessDeniedException",
            KeyDeniedError,
            "kms:Decrypt to read, kms:GenerateDataKey to put",
        ),
        ("KMSDisabledException", KeyUnavailableError, "enable the stream's key"),
        ("KMSInvalidStateException", KeyUnavailableError, "cancel the deletion of the"),
        ("KMSNotFoundException", KeyUnavailableError, "choose another key for the"),
        ("KMSOptInRequired", KeyUnavailableError, "activate KMS"),
        ("KMSThrottlingException", KeyThrottledError, "quota of KMS requests"),
    ],
)
async def test_each_problem_of_a_key_has_a_class_and_a_remedy_of_its_own(
    aws: AwsStub,
    source: KinesisSource,
    code: str,
    error: type[KinesumerError],
    remedy: str,
) -> None:
    aws.refuse("GetRecords", code, "what KMS says")
    with pytest.raises(error) as raised:
        await source.get_records("x", 10)
    assert type(raised.value) is error
    for part in ("kinesis:GetRecords on orders", f"{code}: what KMS says", remedy):
        assert part in str(raised.value)


async def test_a_denied_put_names_the_key_and_what_kms_denies(
    aws: AwsStub, source: KinesisSource
) -> None:
    key = "arn:aws:kms:us-east-1:123456789012:key/1234"
    aws.refuse(
        "PutRecords",
        "KMSAccessDeniedException",
        "User: arn:aws:iam::123456789012:user/me is not authorized to perform: "
        f"kms:GenerateDataKey on resource: {key} because no resource-based policy "
        "allows the kms:GenerateDataKey action",
    )
    with pytest.raises(AccessDeniedError) as raised:
        await source.put_records([])
    assert str(raised.value).startswith(
        f"access denied: kms:GenerateDataKey on {key}: "
        "arn:aws:iam::123456789012:user/me is not authorized because no "
        "resource-based policy"
    )
    assert "kms:Decrypt on" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("StartingSequenceNumber 7 has been trimmed", TrimmedPositionError),
        ("7 is invalid: it did not come from this stream", InvalidPositionError),
        (
            "SequenceNumber has reached max possible value for the shard.",
            InvalidPositionError,
        ),
    ],
)
async def test_a_position_beyond_retention_is_told_from_a_foreign_one(
    aws: AwsStub, source: KinesisSource, text: str, error: type[KinesumerError]
) -> None:
    aws.refuse("GetShardIterator", "InvalidArgumentException", text)
    aws.answer("ListShards", {"Shards": [_listed(0)]})
    with pytest.raises(error, match=text):
        await source.get_iterator(SHARD, Position("7"))


async def test_the_ending_number_of_a_closed_shard_is_read_at_the_shards_end(
    aws: AwsStub, source: KinesisSource
) -> None:
    closed = {"StartingSequenceNumber": "1", "EndingSequenceNumber": "7"}
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.answer("ListShards", {"Shards": [_listed(0, SequenceNumberRange=closed)]})
    aws.refuse("GetShardIterator", "ResourceNotFoundException", "no such record")
    aws.answer("GetShardIterator", {"ShardIterator": "x"})
    assert await source.get_iterator(SHARD, Position("7")) == f"{SHARD} x"
    assert aws.seen[-1].body["ShardIteratorType"] == "LATEST"


async def test_a_time_that_kinesis_has_not_reached_is_not_a_trimmed_position(
    aws: AwsStub, source: KinesisSource
) -> None:
    text = (
        "The timestampInMillis parameter cannot be greater than the "
        "currentTimestampInMillis. timestampInMillis: 1732531200400"
    )
    aws.refuse("GetShardIterator", "InvalidArgumentException", text)
    soon = Start(type="AT_TIMESTAMP", timestamp=1732531200.4)
    with pytest.raises(StartInFutureError, match="currentTimestampInMillis"):
        await source.get_iterator(SHARD, soon)
