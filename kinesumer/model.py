"""The values that everything else speaks of: shards, positions, records, starts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, ClassVar, NamedTuple, Self

import msgspec

from kinesumer.errors import ConfigurationError

HASH_KEYS = 1 << 128
"""Size of a stream's hash space: hash keys are 0 … HASH_KEYS - 1."""


def stream_name(arn: str) -> str:
    """Return the name of the stream that an ARN, or a name itself, stands for."""
    return arn.rpartition("/")[2]


class ShardKey(NamedTuple):
    """A shard's name among all streams: the stream's ARN and the shard's id."""

    stream_arn: str
    shard_id: str


class Position(NamedTuple):
    """A place in a shard: up to and including this record.

    ``sub_sequence_number`` counts within a KPL aggregate. ``None`` stands for the whole
    Kinesis record, and so comes after every part of it.
    """

    sequence_number: str
    sub_sequence_number: int | None = None

    @property
    def order(self) -> tuple[int, str, int]:
        """A key to compare positions of one shard by.

        Sequence numbers are decimal, up to 56 digits and without leading zeros.
        """
        sub = self.sub_sequence_number
        number = self.sequence_number
        return (len(number), number, WHOLE_RECORD if sub is None else sub)

    @property
    def text(self) -> str:
        """The position as text to store: ``SEQUENCE``, ``SEQUENCE:SUB`` in a part."""
        sub = self.sub_sequence_number
        return self.sequence_number if sub is None else f"{self.sequence_number}:{sub}"

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the position that ``text`` wrote. Raises ConfigurationError."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ConfigurationError(
                f"{text!r:.200} is no position: a sequence number, and within a KPL "
                "aggregate a colon and the record's place in it, such as 4962:0"
            )
        number, sub = found.groups()
        return cls(number, None if sub is None else int(sub))

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self.order < _order(other)

    def __le__(self, other: tuple[object, ...]) -> bool:
        return self.order <= _order(other)

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return self.order > _order(other)

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return self.order >= _order(other)


class Tip(NamedTuple):
    """Where a shard ended at a time: no record after ``position`` had arrived then."""

    at: float
    """Seconds since 1970, by Kinesis's clock."""
    position: Position


WHOLE_RECORD = 1 << 53
"""Stored as the sub-sequence number of a position that covers the whole record."""


_POSITION = re.compile(r"([0-9]{1,129})(?::([0-9]{1,15}))?")


def _order(other: tuple[object, ...]) -> tuple[int, str, int]:
    if not isinstance(other, Position):
        raise TypeError(f"a Position can't be compared with {other!r}")
    return other.order


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group begins to read a stream that it has no positions for."""

    type: str
    timestamp: float | None = None
    """Seconds since 1970, for ``AT_TIMESTAMP`` only."""

    LATEST: ClassVar[Start]
    TRIM_HORIZON: ClassVar[Start]

    def __post_init__(self) -> None:
        """Refuse what no row could be read with. Raises ConfigurationError."""
        if self.timestamp is not None and not 0 <= self.timestamp < YEAR_10000:
            raise ConfigurationError(
                f"a start {self.timestamp:g} s after 1970 lies outside 1970 to 9999; "
                "Start.TRIM_HORIZON (TRIM_HORIZON) begins with the oldest one"
            )

    @classmethod
    def at(cls, moment: datetime) -> Self:
        """Start with the first record that arrived at or after an aware datetime.

        Raises ConfigurationError if the datetime is naive. A moment in the future is
        refused by ``consume()``.
        """
        if moment.tzinfo is None or moment.utcoffset() is None:
            raise ConfigurationError(
                f"Start.at({moment!r}) has no time zone; "
                "use datetime.now(UTC) or moment.replace(tzinfo=UTC)"
            )
        return cls(type="AT_TIMESTAMP", timestamp=moment.timestamp())


Start.LATEST = Start(type="LATEST")
Start.TRIM_HORIZON = Start(type="TRIM_HORIZON")


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream to consume: a name or an ARN, and how to reach it.

    ``role_arn`` is assumed by STS (renewed before it expires) with ``external_id`` and
    ``session_name``. ``start`` overrides the one given to ``consume()``.
    ``pace_seconds`` is the shortest time between two reads of one shard. AWS allows one
    every 0.2 seconds, by all apps together: by default, an app slows down to its share.
    """

    name: str
    region: str | None = None
    role_arn: str | None = None
    external_id: str | None = field(default=None, repr=False)
    session_name: str | None = None
    start: Start | None = None
    pace_seconds: float = 0.2


class StreamInfo(NamedTuple):
    """A stream as Kinesis describes it."""

    arn: str
    status: str
    created_at: float
    """Seconds since 1970: tells a stream from one made anew under its name."""
    retention_hours: int = 24
    now: float = 0.0
    """The service's own time at the answer, in seconds since 1970."""
    max_record_bytes: int = 1 << 20
    places_by_key: bool = True
    """Whether partition keys decide on shards; otherwise keys have no order."""


class Shard(NamedTuple):
    """A shard as Kinesis lists it. Parents that have expired may still be named."""

    shard_id: str
    first_hash: int
    last_hash: int
    parents: tuple[str, ...] = ()
    closed: bool = False


class ChildShard(NamedTuple):
    """A child named in the last GetRecords answer of its parent."""

    shard_id: str
    first_hash: int
    last_hash: int
    parents: tuple[str, ...]


class Fence(NamedTuple):
    """Who delivers, and how far: what a sink stores with its output.

    Within one app and shard a larger epoch is a later owner, and a position that isn't
    after the stored one was stored before.
    """

    shard: ShardKey
    epoch: int
    app: str = ""
    """The group; empty for records that none delivered."""
    position: Position | None = None
    """Of the record, or of the batch's last one. None only for an empty batch."""

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self.shard.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    def at(self, position: Position | None) -> Fence:
        """Return the fence of what ends at this position."""
        return Fence(self.shard, self.epoch, self.app, position)


class Source:
    """What all records of one shard and epoch have in common."""

    __slots__ = ("fence", "first_hash", "last_hash", "shard_id", "stream", "stream_arn")

    def __init__(self, fence: Fence, first_hash: int, last_hash: int) -> None:
        self.fence = fence
        self.stream_arn, self.shard_id = fence.shard
        self.stream = stream_name(self.stream_arn)
        self.first_hash, self.last_hash = first_hash, last_hash


NotInJson = Annotated[int, msgspec.Meta(gt=0, lt=0)]
"""A number that we set ourselves: no JSON can, since no number meets this."""

TextNotInJson = Annotated[str, msgspec.Meta(min_length=1, max_length=0)]
"""The same for text."""


YEAR_10000 = 253_402_300_800.0
"""Seconds since 1970 that no time reaches."""

Seconds = Annotated[float, msgspec.Meta(ge=0, lt=YEAR_10000)]
"""A time since 1970: what isn't one is refused with its page."""


class Record(msgspec.Struct, gc=False, rename="pascal"):
    """One user record. What its shard tells of it is looked up only when asked for."""

    sequence_number: str
    data: bytes
    partition_key: str | None = None
    approximate_arrival_timestamp: Seconds | None = None
    explicit_hash_key: TextNotInJson | None = msgspec.field(name="-hash", default=None)
    """What the producer gave a record of an aggregate: decimal digits, as in AWS's API.
    Kinesis doesn't return it for other records."""
    sub_sequence_number: NotInJson | None = msgspec.field(name="-sub", default=None)
    """Place within a KPL aggregate, from 0; None if the record wasn't aggregated."""
    source: Source | None = msgspec.field(name="-source", default=None)

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self._source.stream

    @property
    def stream_arn(self) -> str:
        """The stream's ARN."""
        return self._source.stream_arn

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self._source.shard_id

    @property
    def fence(self) -> Fence:
        """App, shard, the epoch in which this client owns it, and the position."""
        return self._source.fence.at(self.position)

    @property
    def arrived_at(self) -> datetime | None:
        """When Kinesis took the record (UTC, about a millisecond's precision)."""
        seconds = self.approximate_arrival_timestamp
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)

    @property
    def position(self) -> Position:
        """The place in its shard up to and including this record."""
        return Position(self.sequence_number, self.sub_sequence_number)

    @property
    def _source(self) -> Source:
        if self.source is None:
            raise AttributeError("this record was made by hand: it has no shard")
        return self.source


class Page(NamedTuple):
    """One GetRecords answer, aggregates not opened yet."""

    records: list[Record]
    next_iterator: str | None
    """None: the shard is closed and this was its last page."""
    millis_behind: int
    children: tuple[ChildShard, ...] = ()
    wire_bytes: int = 0
    """Length of the answer's body."""


class Interval(NamedTuple):
    """Hash keys first … last (inclusive) of one stream."""

    stream_arn: str
    first: int
    last: int


Range = tuple[Interval, ...]
"""What one client consumes: intervals, sorted by stream and first hash key."""
