"""Decode the responses of DescribeStreamSummary and ListShards."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from kinesumer.model.streams import Shard, StreamInfo
from kinesumer.wire.records import Body, HashKeyRange

_Arn = Annotated[
    str, msgspec.Meta(pattern=r"\Aarn:[^:\s]+:kinesis:[^:\s]*:[^:\s]*:stream/\S+\Z")
]


class _Summary(msgspec.Struct):
    arn: _Arn = msgspec.field(name="StreamARN")
    status: str = msgspec.field(name="StreamStatus")
    # Emulators of Kinesis may write a time as text, and a missing field as null.
    created: float | str = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: int = msgspec.field(name="RetentionPeriodHours")
    max_record_kib: int | None = msgspec.field(name="MaxRecordSizeInKiB", default=None)
    # Only streams in on-demand mode have this field.
    distribution: str | None = msgspec.field(
        name="RecordDistributionStrategy", default=None
    )


class _Answer(msgspec.Struct):
    summary: _Summary = msgspec.field(name="StreamDescriptionSummary")


_decode = msgspec.json.Decoder(_Answer).decode


def decode_description(body: Body, now: float) -> StreamInfo:
    """Return a stream's description. ``now`` is the service's time of the response.

    Raise msgspec.DecodeError if the body isn't a response of Kinesis.
    """
    summary = _decode(body).summary
    created = summary.created
    if isinstance(created, str):
        try:
            created = datetime.fromisoformat(created).timestamp()
        except ValueError as error:
            raise msgspec.ValidationError(
                f"{error} - at `$.StreamDescriptionSummary.StreamCreationTimestamp`"
            ) from error
    return StreamInfo(
        arn=summary.arn,
        status=summary.status,
        created_at=created,
        retention_hours=summary.retention_hours,
        now=now,
        max_record_bytes=(summary.max_record_kib or 1024) * 1024,
        routes_by_key=summary.distribution != "AUTO",
    )


class _SequenceNumbers(msgspec.Struct, rename="pascal"):
    ending_sequence_number: str | None = None


class _ListedShard(msgspec.Struct, rename="pascal"):
    """A shard as ListShards describes it."""

    shard_id: str
    hash_key_range: HashKeyRange
    sequence_number_range: _SequenceNumbers
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    def read(self) -> Shard:
        """Return the shard. Raise ValueError if its hash keys are invalid."""
        parents = (self.parent_shard_id, self.adjacent_parent_shard_id)
        return Shard(
            self.shard_id,
            *self.hash_key_range.bounds(),
            tuple(parent for parent in parents if parent),
            self.sequence_number_range.ending_sequence_number,
        )


class _Listing(msgspec.Struct, rename="pascal"):
    shards: list[_ListedShard]
    next_token: str | None = None


_decode_listing = msgspec.json.Decoder(_Listing).decode


def decode_shards(body: Body) -> tuple[list[Shard], str | None]:
    """Return the shards of a listing, and the token of its next page.

    Raise msgspec.DecodeError if the body isn't a response of Kinesis, and ValueError if
    a shard's hash keys are invalid.
    """
    page = _decode_listing(body)
    return [shard.read() for shard in page.shards], page.next_token or None
