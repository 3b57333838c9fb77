"""Decode the responses of DescribeStreamSummary and ListShards."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kinesumer.model.streams import Shard
from kinesumer.wire.records import HashKeyRange

_Arn = Annotated[
    str, msgspec.Meta(pattern=r"\Aarn:[^:\s]+:kinesis:[^:\s]*:[^:\s]*:stream/\S+\Z")
]


class _Summary(msgspec.Struct):
    arn: _Arn = msgspec.field(name="StreamARN")
    status: str = msgspec.field(name="StreamStatus")
    created: float = msgspec.field(name="StreamCreationTimestamp")
    retention_hours: int = msgspec.field(name="RetentionPeriodHours")
    max_record_kib: int = msgspec.field(name="MaxRecordSizeInKiB", default=1024)
    # Only streams in on-demand mode have this field.
    distribution: str = msgspec.field(name="RecordDistributionStrategy", default="")


class _Description(msgspec.Struct):
    summary: _Summary = msgspec.field(name="StreamDescriptionSummary")


decode_description = msgspec.json.Decoder(_Description).decode


class _SequenceNumbers(msgspec.Struct, rename="pascal"):
    ending_sequence_number: str | None = None


class ListedShard(msgspec.Struct, rename="pascal"):
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
