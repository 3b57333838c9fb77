"""The requests that the embedded Kinesis understands, checked as they are decoded."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from kinesumer.local.request import AwsError

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[a-zA-Z0-9_.-]+$")]
Key = Annotated[str, Meta(min_length=1, max_length=256)]
Count = Annotated[int, Meta(ge=1)]


class Request(msgspec.Struct, rename="pascal", kw_only=True):
    """A request about one stream, by name or by ARN."""

    stream_name: Name | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)


class ModeDetails(msgspec.Struct, rename="pascal", frozen=True):
    """Provisioned or on demand."""

    stream_mode: Literal["PROVISIONED", "ON_DEMAND"]


class CreateStream(Request):
    """CreateStream."""

    stream_name: Name
    shard_count: Count | None = None
    stream_mode_details: ModeDetails = ModeDetails("PROVISIONED")
    max_record_size: int = msgspec.field(name="MaxRecordSizeInKiB", default=1024)


class DeleteStream(Request):
    """DeleteStream."""


class DescribeStream(Request):
    """DescribeStream."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    exclusive_start_shard_id: str = ""


class DescribeStreamSummary(Request):
    """DescribeStreamSummary."""


class DescribeLimits(msgspec.Struct, kw_only=True):
    """DescribeLimits."""


class ListStreams(msgspec.Struct, rename="pascal", kw_only=True):
    """ListStreams."""

    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    exclusive_start_stream_name: str = ""
    next_token: str = ""


class ShardFilter(msgspec.Struct, rename="pascal", kw_only=True):
    """Which shards a listing has."""

    type: Literal[
        "AFTER_SHARD_ID",
        "AT_TRIM_HORIZON",
        "FROM_TRIM_HORIZON",
        "AT_LATEST",
        "AT_TIMESTAMP",
        "FROM_TIMESTAMP",
    ]
    shard_id: str | None = None
    timestamp: float | None = None


class ListShards(Request):
    """ListShards."""

    next_token: str | None = None
    exclusive_start_shard_id: str | None = None
    max_results: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    shard_filter: ShardFilter | None = None
    stream_creation_timestamp: float | None = None


class PutRecord(Request):
    """PutRecord."""

    data: bytes
    partition_key: Key
    explicit_hash_key: str | None = None
    sequence_number_for_ordering: str | None = None


class Entry(msgspec.Struct, rename="pascal"):
    """One record of PutRecords."""

    data: bytes
    partition_key: Key
    explicit_hash_key: str | None = None


class PutRecords(Request):
    """PutRecords."""

    records: Annotated[list[Entry], Meta(min_length=1)]


class GetShardIterator(Request):
    """GetShardIterator."""

    shard_id: str
    shard_iterator_type: Literal[
        "AT_SEQUENCE_NUMBER",
        "AFTER_SEQUENCE_NUMBER",
        "TRIM_HORIZON",
        "LATEST",
        "AT_TIMESTAMP",
    ]
    starting_sequence_number: str | None = None
    timestamp: float | None = None


class GetRecords(Request):
    """GetRecords."""

    shard_iterator: Annotated[str, Meta(min_length=1)]
    limit: Count | None = None


class SplitShard(Request):
    """SplitShard."""

    shard_to_split: str
    new_starting_hash_key: str


class MergeShards(Request):
    """MergeShards."""

    shard_to_merge: str
    adjacent_shard_to_merge: str


class UpdateShardCount(Request):
    """UpdateShardCount."""

    target_shard_count: Count
    scaling_type: Literal["UNIFORM_SCALING"]


class IncreaseStreamRetentionPeriod(Request):
    """IncreaseStreamRetentionPeriod."""

    retention_period_hours: int


class DecreaseStreamRetentionPeriod(Request):
    """DecreaseStreamRetentionPeriod."""

    retention_period_hours: int


class UpdateStreamMode(Request):
    """UpdateStreamMode."""

    stream_mode_details: ModeDetails


class UpdateMaxRecordSize(Request):
    """UpdateMaxRecordSize."""

    max_record_size: int = msgspec.field(name="MaxRecordSizeInKiB")


AnyRequest = Request | DescribeLimits | ListStreams
_TYPES: tuple[type[AnyRequest], ...] = (
    CreateStream,
    DeleteStream,
    DescribeStream,
    DescribeStreamSummary,
    DescribeLimits,
    ListStreams,
    ListShards,
    PutRecord,
    PutRecords,
    GetShardIterator,
    GetRecords,
    SplitShard,
    MergeShards,
    UpdateShardCount,
    IncreaseStreamRetentionPeriod,
    DecreaseStreamRetentionPeriod,
    UpdateStreamMode,
    UpdateMaxRecordSize,
)
_DECODERS = {kind.__name__: msgspec.json.Decoder(kind) for kind in _TYPES}


def decode(operation: str, body: bytes) -> AnyRequest:
    """Return the request in a body; raise AwsError if it can't be one."""
    decoder = _DECODERS.get(operation)
    if decoder is None:
        raise AwsError(
            "UnknownOperationException",
            f"The embedded Kinesis has no operation {operation}.",
        )
    try:
        return decoder.decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise AwsError(
            "ValidationException", f"1 validation error detected: {error}"
        ) from None
    except msgspec.DecodeError as error:
        raise AwsError("SerializationException", str(error)) from None
