"""An offset of a query: its position in every shard, as stored in Spark's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesumer.model.streams import Start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model.positions import Position


@dataclass(frozen=True, slots=True)
class After:
    """Just after a record."""

    position: Position
    seen: float
    """A time by Kinesis's clock, in seconds since 1970. No record that arrived before
    it lies after the position. It shows whether unread records may have expired."""


@dataclass(frozen=True, slots=True)
class At:
    """Just before a record: the begin of a batch that a Start began.

    The record existed when the batch was planned. If it doesn't exist when the batch is
    computed, it has expired.
    """

    sequence_number: str
    seen: float
    """The arrival time of the record."""


@dataclass(frozen=True, slots=True)
class End:
    """The shard is closed and has been read to its end."""

    seen: float = field(default=0.0, compare=False)
    """A time before which its children hold nothing. 0: unknown."""


END = End()
BEGINNING = Start.TRIM_HORIZON
"""The position in a shard that an offset doesn't name yet."""

ShardPosition = After | At | Start | End
"""The position in one shard. A Start is TRIM_HORIZON or AT_TIMESTAMP."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The positions in all known shards of a stream."""

    created_at: float
    """The creation time, which changes if the stream is recreated under its name."""
    shards: Mapping[str, ShardPosition]
    anchored_at: float = 0.0
    """The time of the query's first batch of the stream, for Start positions."""
    origin: Mapping[str, ShardPosition] = field(default_factory=dict)
    """The begin of the batch that ends here, where the previous offset lacks it: for
    all shards of a new stream, and for shards whose old position has expired."""


Offset = dict[str, StreamOffset]
"""The streams by ARN. Empty before the query's first batch."""
