"""Test the descriptions of streams, and that missing ones are told from shards."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kinesumer.aws.kinesis import KinesisSource
from kinesumer.aws.streams import decode_description
from kinesumer.errors import (
    KinesumerError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, StreamInfo
from tests.support.aws_keys import SUMMARY
from tests.support.aws_stub import AwsStub

pytestmark = pytest.mark.pinned

SHARD = "shardId-000000000000"


async def test_a_missing_stream_is_named(aws: AwsStub, source: KinesisSource) -> None:
    aws.refuse("DescribeStreamSummary", "ResourceNotFoundException", "no such thing")
    aws.refuse("GetShardIterator", "ResourceNotFoundException", "no such thing")
    aws.refuse("ListStreams", "AccessDeniedException")
    with pytest.raises(StreamMissingError, match="No stream 'orders' in this account"):
        await source.describe()
    with pytest.raises(StreamMissingError, match="No stream 'orders'"):
        await source.get_iterator(SHARD, Start.LATEST)


async def test_a_similar_name_is_searched_on_all_pages(
    aws: AwsStub, source: KinesisSource
) -> None:
    text = "Stream orders under account 123456789012 not found."
    aws.refuse("DescribeStreamSummary", "ResourceNotFoundException", text)
    aws.answer("ListStreams", {"StreamNames": ["clicks"], "HasMoreStreams": True})
    aws.answer("ListStreams", {"StreamNames": ["order"], "HasMoreStreams": False})
    with pytest.raises(StreamMissingError) as raised:
        await source.describe()
    assert "in account 123456789012, eu-west-1. Did you mean 'order'?" in str(
        raised.value
    )
    [_, second] = [one for one in aws.seen if one.operation == "ListStreams"]
    assert second.body == {"ExclusiveStartStreamName": "clicks"}


async def test_a_stream_that_was_deleted_is_not_searched(
    aws: AwsStub, source: KinesisSource
) -> None:
    aws.answer("DescribeStreamSummary", SUMMARY)
    await source.describe()
    aws.refuse("ListShards", "ResourceNotFoundException")
    with pytest.raises(StreamMissingError, match="account 123456789012, eu-west-1"):
        await source.list_shards()
    assert aws.count("ListStreams") == 0


async def test_a_shard_that_is_listed_is_not_missing(
    aws: AwsStub, source: KinesisSource
) -> None:
    # Some emulators say so of a record that they don't find.
    aws.answer("DescribeStreamSummary", SUMMARY)
    aws.refuse("GetShardIterator", "ResourceNotFoundException", "no such record")
    listed = {
        "ShardId": SHARD,
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
        "SequenceNumberRange": {"StartingSequenceNumber": "1"},
    }
    aws.answer("ListShards", {"Shards": [listed]})
    with pytest.raises(SourceUnavailableError, match="lists the shard"):
        await source.get_iterator(SHARD, Position("7"))


@pytest.mark.parametrize(
    ("status", "error"),
    [("DELETING", StreamMissingError), ("CREATING", SourceUnavailableError)],
)
async def test_a_shard_isnt_missing_while_its_stream_comes_or_goes(
    aws: AwsStub, source: KinesisSource, status: str, error: type[KinesumerError]
) -> None:
    summary = SUMMARY["StreamDescriptionSummary"] | {"StreamStatus": status}
    aws.answer("DescribeStreamSummary", {"StreamDescriptionSummary": summary})
    aws.refuse("GetRecords", "ResourceNotFoundException")
    with pytest.raises(error):
        await source.get_records("x", 10)


DESCRIPTION: dict[str, Any] = {
    "StreamARN": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders",
    "StreamStatus": "ACTIVE",
    "StreamCreationTimestamp": 1700000000.25,
    "RetentionPeriodHours": 48,
}


def described(**changes: object) -> StreamInfo:
    summary = DESCRIPTION | changes
    body = json.dumps({"StreamDescriptionSummary": summary}).encode()
    return decode_description(body, 7.0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"MaxRecordSizeInKiB": 10240}, {"max_record_bytes": 10 << 20}),
        ({"RecordDistributionStrategy": "USER_PARTITION_KEY"}, {}),
        ({"RecordDistributionStrategy": "AUTO"}, {"routes_by_key": False}),
        # An emulator may write texts and nulls.
        ({"StreamCreationTimestamp": "2023-11-14T22:13:20.250Z"}, {}),
        ({"MaxRecordSizeInKiB": None, "RecordDistributionStrategy": None}, {}),
    ],
)
def test_a_description_has_what_kinesis_tells(
    changes: dict[str, object], expected: dict[str, Any]
) -> None:
    arn = DESCRIPTION["StreamARN"]
    usual = StreamInfo(arn, "ACTIVE", 1700000000.25, 48, 7.0, 1 << 20, True)
    assert described(**changes) == usual._replace(**expected)


@pytest.mark.parametrize(
    "changes",
    [{"StreamARN": "orders"}, {"RetentionPeriodHours": "48"}, {"StreamStatus": None}],
)
def test_an_answer_of_something_else_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        described(**changes)
