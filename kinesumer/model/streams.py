"""Streams, shards, starts and intervals of hash keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import msgspec

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

HASH_KEYS = 1 << 128
"""Size of a stream's hash space. Hash keys are 0 to HASH_KEYS - 1."""


def stream_name(arn: str) -> str:
    """Return the stream's name from its ARN or name."""
    return arn.rpartition("/")[2]


class ShardKey(NamedTuple):
    """A shard's identity: the stream's ARN and the shard's id."""

    stream_arn: str
    shard_id: str


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group starts to read a stream for which it has no positions."""

    type: str
    timestamp: float | None = None
    """Seconds since 1970, for ``AT_TIMESTAMP`` only."""

    LATEST: ClassVar[Start]
    TRIM_HORIZON: ClassVar[Start]

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a time that a row can't store."""
        if self.timestamp is not None and not 0 <= self.timestamp < YEAR_10000:
            raise ConfigurationError(
                f"a start {self.timestamp:g} s after 1970 lies outside 1970 to 9999; "
                "Start.TRIM_HORIZON (TRIM_HORIZON) begins with the oldest one"
            )

    @classmethod
    def at(cls, moment: datetime) -> Self:
        """Start with the first record that arrived at or after an aware datetime.

        Raise ConfigurationError if the datetime is naive. ``consume()`` rejects a time
        in the future.
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
    ``min_read_interval_seconds`` is the shortest time between two reads of one shard.
    AWS allows one every 0.2 seconds, by all apps together: by default, an app slows
    down to its share.
    """

    name: str
    region: str | None = None
    role_arn: str | None = None
    external_id: str | None = field(default=None, repr=False)
    session_name: str | None = None
    start: Start | None = None
    min_read_interval_seconds: float = 0.2


class StreamInfo(NamedTuple):
    """A stream as Kinesis describes it."""

    arn: str
    status: str
    created_at: float
    """Seconds since 1970. It distinguishes a stream from a recreated one."""
    retention_hours: int = 24
    now: float = 0.0
    """The service's time when it responded, in seconds since 1970."""
    max_record_bytes: int = 1 << 20
    routes_by_key: bool = True
    """Whether partition keys choose the shards. Otherwise a key's records may lie in
    several shards and have no order."""


class Shard(NamedTuple):
    """A shard as ListShards returns it. It may name parents that have expired."""

    shard_id: str
    first_hash: int
    last_hash: int
    parents: tuple[str, ...] = ()
    closed: bool = False


class ChildShard(NamedTuple):
    """A child shard that the last GetRecords response of its parent names."""

    shard_id: str
    first_hash: int
    last_hash: int
    parents: tuple[str, ...]


YEAR_10000 = 253_402_300_800.0
"""The first time that can't be stored, in seconds since 1970."""


class Interval(NamedTuple):
    """The hash keys ``first`` to ``last`` of one stream, both included."""

    stream_arn: str
    first: int
    last: int


Range = tuple[Interval, ...]
"""The intervals that one client consumes, sorted by stream and first hash key."""
