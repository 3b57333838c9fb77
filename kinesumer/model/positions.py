"""Positions in a shard, and the offset of a query: its position in every shard."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start

# Stands for None as the sub-sequence number of a position that covers a whole record.
# It is greater than any index within an aggregate.
WHOLE_RECORD = 1 << 53
# A read that reaches the newest record may still miss records that arrived up to this
# long before it. It is also the maximum error of the estimate of Kinesis's clock, by
# which records get their arrival times.
SEEN_SLACK_SECONDS = 60.0
_POSITION = re.compile(r"([0-9]{1,129})(?::([0-9]{1,15}))?")


class Position(NamedTuple):
    """A position in a shard, up to and including one record.

    ``sub_sequence_number`` counts the records of a KPL aggregate from 0. None means the
    whole Kinesis record, which sorts after all its parts.
    """

    sequence_number: str
    sub_sequence_number: int | None = None

    @property
    def order(self) -> tuple[int, str, int]:
        """The sort key among positions of one shard."""
        # Sequence numbers are decimal, with up to 56 digits and no leading zeros. So a
        # longer one is larger, and comparing text is faster than converting it.
        sub = self.sub_sequence_number
        number = self.sequence_number
        return (len(number), number, WHOLE_RECORD if sub is None else sub)

    @property
    def text(self) -> str:
        """The stored text: ``SEQUENCE``, or ``SEQUENCE:SUB`` within an aggregate."""
        sub = self.sub_sequence_number
        return self.sequence_number if sub is None else f"{self.sequence_number}:{sub}"

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Parse a position. Raise ConfigurationError if the text is invalid."""
        match = _POSITION.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"invalid position {text!r:.200}: use a sequence number; for a record "
                "of a KPL aggregate, add a colon and its index, such as 4962:0"
            )
        number, sub = match.groups()
        return cls(number, None if sub is None else int(sub))

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self.order < _order(other)

    def __le__(self, other: tuple[object, ...]) -> bool:
        return self.order <= _order(other)

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return self.order > _order(other)

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return self.order >= _order(other)


def number_order(sequence_number: str) -> tuple[int, str]:
    """Return the sort key of a sequence number. It is faster than a conversion."""
    return len(sequence_number), sequence_number


class Tip(NamedTuple):
    """The position of a shard's last record at the time ``at``."""

    at: float  # seconds since 1970, by Kinesis's clock
    position: Position


def may_be_trimmed(seen: float, retention_seconds: float, now: float) -> bool:
    """Return whether a record that arrived after a time may have expired.

    ``seen`` is a time until which no record came after a position. If this returns
    true, records after the position may be lost.
    """
    return seen + retention_seconds < now


BEFORE_ALL = Position("0")  # lower than the position of any record of Kinesis


def _order(other: tuple[object, ...]) -> tuple[int, str, int]:
    if not isinstance(other, Position):
        raise TypeError(f"can't compare a Position with {other!r}: compare positions")
    return other.order


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
