"""What Spark's log holds of a query: a position in every shard."""

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
    """A time (seconds since 1970, by Kinesis's clock) up to which every record of the
    shard is known to lie at or before the position: tells whether retention may have
    passed unread records."""


@dataclass(frozen=True, slots=True)
class At:
    """Just before a record: where a batch begins that a Start began.

    The record was there when the batch was planned, so it must be there when the batch
    is computed: otherwise retention has taken it.
    """

    sequence_number: str
    seen: float
    """When the record arrived."""


@dataclass(frozen=True, slots=True)
class End:
    """The shard is closed and has been read to its end."""

    seen: float = field(default=0.0, compare=False)
    """A time before which its children hold nothing. 0: unknown."""


END = End()
BEGINNING = Start.TRIM_HORIZON
"""The place of a shard that an offset doesn't name yet: a child's."""

ShardPosition = After | At | Start | End
"""Where reading of one shard goes on. A Start is TRIM_HORIZON or AT_TIMESTAMP."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The places of all known shards of a stream."""

    created_at: float
    """Tells a stream from one that was created anew under its name."""
    shards: Mapping[str, ShardPosition]
    anchored_at: float = 0.0
    """When the query first saw the stream: how old its Start places are."""
    origin: Mapping[str, ShardPosition] = field(default_factory=dict)
    """Where the batch that ends here begins, in shards where the one before doesn't say
    it: all of a new stream's, and those whose old position can't be asked for."""


Offset = dict[str, StreamOffset]
"""Every stream by its ARN. Empty: before the query's first batch."""
