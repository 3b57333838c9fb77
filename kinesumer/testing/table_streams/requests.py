"""Define the requests of DynamoDB Streams. Their classes have the operations' names."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kinesumer.testing.kinesis.requests import (
    AwsError,
    Count,
    ShardIterator,
    decode_request,
    invalid_request,
)

Place = Literal[
    "TRIM_HORIZON",
    "LATEST",
    "AT_SEQUENCE_NUMBER",
    "AFTER_SEQUENCE_NUMBER",
    "AT_TIMESTAMP",
]
StreamArn = Annotated[
    str,
    Meta(
        min_length=37,
        max_length=1024,
        pattern=r"^arn:[^:]+:dynamodb:[^:]+:[0-9]{12}:table/[a-zA-Z0-9_.-]+/stream/[^/]+$",
    ),
]
ShardId = Annotated[str, Meta(min_length=28, max_length=65)]


class ListStreams(msgspec.Struct, rename="pascal", kw_only=True):
    """Ask for a page of the streams of an account and region."""

    table_name: str | None = None
    limit: Count | None = None
    exclusive_start_stream_arn: StreamArn | None = None


class ShardFilter(msgspec.Struct, rename="pascal", kw_only=True):
    """A filter that selects the children of a shard."""

    type: Literal["CHILD_SHARDS"]
    shard_id: ShardId


class DescribeStream(msgspec.Struct, rename="pascal", kw_only=True):
    """Ask for a stream and a page of its shards."""

    stream_arn: StreamArn
    limit: Count | None = None
    exclusive_start_shard_id: ShardId | None = None
    shard_filter: ShardFilter | None = None


class GetShardIterator(msgspec.Struct, rename="pascal", kw_only=True):
    """Ask for a place in a shard."""

    stream_arn: StreamArn
    shard_id: ShardId
    shard_iterator_type: Place
    sequence_number: Annotated[str, Meta(min_length=21, max_length=40)] | None = None
    timestamp: float | None = None


class GetRecords(msgspec.Struct, rename="pascal", kw_only=True):
    """Ask for the records from a place on."""

    shard_iterator: Annotated[str, Meta(min_length=1, max_length=2048)]
    limit: Count | None = None


AnyRequest = ListStreams | DescribeStream | GetShardIterator | GetRecords
_DECODERS: dict[str, msgspec.json.Decoder[AnyRequest]] = {
    "ListStreams": msgspec.json.Decoder(ListStreams),
    "DescribeStream": msgspec.json.Decoder(DescribeStream),
    "GetShardIterator": msgspec.json.Decoder(GetShardIterator),
    "GetRecords": msgspec.json.Decoder(GetRecords),
}


def decode(operation: str, body: bytes) -> AnyRequest:
    """Return the request in a body. Raise AwsError if it is invalid."""
    return decode_request(_DECODERS, operation, body)


def encode_iterator(iterator: ShardIterator) -> str:
    """Return an iterator as text, which begins with the stream's ARN as in AWS."""
    return f"{iterator.stream_arn}|1|{iterator.encode()}"


def decode_iterator(text: str) -> ShardIterator:
    """Parse an iterator. Raise ValidationException if the text isn't one."""
    try:
        return ShardIterator.decode(text.rpartition("|")[2])
    except AwsError:
        raise invalid_request("Invalid ShardIterator") from None
