"""The offset of a query, which contains its position in every shard.

Spark writes the offset to its log after planning each batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kinesumer.model.positions import Position
from kinesumer.model.streams import Start


@dataclass(frozen=True, slots=True)
class After:
    """The position just after a record."""

    position: Position
    # A time by Kinesis's clock, in seconds since 1970. All records after the position
    # arrived at this time or later. So they can't have expired while this time is
    # within the retention.
    seen: float


@dataclass(frozen=True, slots=True)
class At:
    """The position just before a record.

    It replaces a Start when a batch is planned, and names the batch's first record. If
    that record is missing when a task reads the batch, it has expired.
    """

    sequence_number: str
    seen: float  # the arrival time of the record


@dataclass(frozen=True, slots=True)
class End:
    """The position at the end of a closed shard, which has been read completely."""

    # All records of the shard's children arrived at this time or later. 0 if unknown.
    seen: float = field(default=0.0, compare=False)


END = End()
BEGINNING = Start.TRIM_HORIZON  # the position in a shard that isn't in the offset yet

# The position in one shard. A Start in an offset is never LATEST.
ShardPosition = After | At | Start | End
Positions = Mapping[str, ShardPosition]  # by shard id


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The positions in all known shards of a stream."""

    # When the stream was created. The time changes if the stream is recreated.
    created_at: float
    shards: Positions
    # When the query planned its first batch of the stream. This is used as the time of
    # positions that have none.
    anchored_at: float = 0.0
    # Where the batch that ends at this offset begins, for shards that have no usable
    # position in the previous offset. These are all shards of a stream that is new to
    # the query, and shards in which the previous position has expired.
    origin: Positions = field(default_factory=dict)


# The offset of a query: a StreamOffset for each stream's ARN. It is empty before the
# query's first batch.
Offset = dict[str, StreamOffset]
