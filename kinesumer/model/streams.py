"""Streams, shards, starts and intervals of hash keys."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import ClassVar, NamedTuple, Self

import msgspec

from kinesumer.errors import ConfigurationError
from kinesumer.model.table_streams import (
    is_table_stream,
    name_of_table,
    parse_table_stream,
    table_label,
)
from kinesumer.model.times import parse_age, parse_time, time_text
from kinesumer.model.validation import MAX_PAUSE_SECONDS, require_flag, require_text

# Size of a stream's hash space. Hash keys are 0 to HASH_KEYS - 1.
HASH_KEYS = 1 << 128
# The first time that can't be stored, in seconds since 1970.
YEAR_10000 = 253_402_300_800.0
CONSUMER_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
CONSUMER_ARN = re.compile(
    r"(arn:[\w-]+:kinesis:[\w-]+:[0-9]{12}:stream/[\w.-]{1,128})"
    r"/consumer/([\w.-]{1,128}):[0-9]+",
    re.ASCII,
)


def stream_name(arn: str) -> str:
    """Return the stream's name from its ARN or name: ``table/NAME`` for a table's."""
    if is_table_stream(arn):
        return table_label(arn) if arn.startswith("arn:") else arn
    return arn.rpartition("/")[2]


def stream_place(arn: str) -> str:
    """Return the account and region in a stream's ARN; empty for a name."""
    return ", ".join(arn.split(":")[4:2:-1])


class ShardKey(NamedTuple):
    """A shard's identity: the stream's ARN and the shard's id."""

    stream_arn: str
    shard_id: str


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The point at which a group without positions begins to read a stream."""

    type: str
    timestamp: float | None = None
    """Seconds since 1970, for ``AT_TIMESTAMP`` only."""

    LATEST: ClassVar[Start]
    TRIM_HORIZON: ClassVar[Start]

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a time that a row can't store."""
        if self.timestamp is not None and not 0 <= self.timestamp < YEAR_10000:
            raise _outside(f"{self.timestamp:g} s after 1970")

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
        timestamp = moment.timestamp()
        if not 0 <= timestamp < YEAR_10000:
            raise _outside(moment.isoformat())
        return cls(type="AT_TIMESTAMP", timestamp=timestamp)

    @classmethod
    def ago(cls, age: timedelta | str) -> Self:
        """Start with the first record that arrived at most ``age`` before this call.

        ``age`` is a timedelta, or a number with a unit: ``"30s"``, ``"90m"``, ``"2h"``
        or ``"3d"``. Raise ConfigurationError if it is anything else, or negative.
        """
        now = datetime.now(UTC)
        try:
            return cls.at(now - parse_age(age))
        except OverflowError:
            raise _outside(f"{age} ago") from None

    @classmethod
    def parse(cls, text: str, *, name: str = "start") -> Self:
        """Return the start that a text says.

        The text is ``LATEST`` or ``TRIM_HORIZON`` in upper or lower case, an age as
        ``ago()`` takes it, or a time with its zone, such as ``2026-01-31T12:00:00Z``.
        Raise ConfigurationError for any other text; the error begins with ``name``.
        """
        if text.upper() in NAMED_STARTS:
            return cls(type=text.upper())
        return cls.at(parse_time(name, text, datetime.now(UTC), NAMED_STARTS))


def _outside(start: str) -> ConfigurationError:
    return ConfigurationError(
        f"the start {start} lies outside 1970 to 9999; use TRIM_HORIZON to begin with "
        "the oldest record"
    )


NAMED_STARTS = ("LATEST", "TRIM_HORIZON")
Start.LATEST = Start(type="LATEST")
Start.TRIM_HORIZON = Start(type="TRIM_HORIZON")

StartLike = Start | str


def as_start(start: StartLike) -> Start:
    """Return a start, which may be given as a text for ``Start.parse()``.

    Raise ConfigurationError for other values.
    """
    if isinstance(start, str):
        return Start.parse(start)
    if not isinstance(start, Start):
        raise ConfigurationError(
            f'start={start!r} must be a Start or a text, such as Start.LATEST or "2h"'
        )
    return start


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream to consume, by name, ARN or table, and the options for access to it.

    The role ``role_arn`` is assumed through STS, with ``external_id`` and
    ``session_name``, and is renewed before it expires. ``start``, a Start or a text for
    ``Start.parse()``, overrides the start given to ``consume()``.
    ``min_read_interval_seconds`` is the shortest time between two reads of one shard.
    AWS allows one read every 0.2 seconds for all apps together. By default, an app
    slows down until it reads only its share.

    ``fan_out`` is the name or ARN of a registered consumer of the stream (enhanced
    fan-out). Kinesis then sends the records unasked, and other apps do not slow this
    one down. A name is registered if it is missing. With ``fan_out_fallback``, the
    client polls while fan-out is not possible, instead of raising an error.

    ``table`` is the name or ARN of a DynamoDB table, instead of a stream's name: its
    latest stream is consumed, as the stream ``table/NAME``. ``name`` may also be this
    name, or the ARN of one of the table's streams. Such a stream has no fan-out.
    """

    name: str = ""
    region: str | None = None
    role_arn: str | None = None
    external_id: str | None = field(default=None, repr=False)
    session_name: str | None = None
    start: StartLike | None = None
    min_read_interval_seconds: float = 0.2
    fan_out: str | None = None
    fan_out_fallback: bool = False
    table: str | None = None

    def __post_init__(self) -> None:
        """Parse the start. Raise ConfigurationError if a value can't be used."""
        require_text("stream", self.name)
        self._name_table()
        if not self.name.strip():
            raise ConfigurationError(
                "a stream's name is empty: give a name, an ARN or a table"
            )
        for name in ("region", "role_arn", "external_id", "session_name"):
            if (value := getattr(self, name)) is not None:
                require_text(f"stream {self.name}: {name}", value)
                if not value.strip():
                    raise ConfigurationError(
                        f"stream {self.name}: {name} is empty: leave it out, or give "
                        "a value"
                    )
        for name in ("external_id", "session_name"):
            if getattr(self, name) is not None and self.role_arn is None:
                raise ConfigurationError(
                    f"stream {self.name}: {name} needs role_arn, the role to assume: "
                    "give both, or neither"
                )
        seconds = self.min_read_interval_seconds
        if type(seconds) not in (int, float) or not 0 <= seconds <= MAX_PAUSE_SECONDS:
            raise ConfigurationError(
                f"stream {self.name}: min_read_interval_seconds={seconds!r} must be a "
                f"number of seconds from 0 to {MAX_PAUSE_SECONDS:g}"
            )
        require_flag(f"stream {self.name}: fan_out_fallback", self.fan_out_fallback)
        if self.start is not None:
            object.__setattr__(self, "start", as_start(self.start))

    def _name_table(self) -> None:
        """Give the stream of a table its name."""
        if self.table is not None:
            require_text("table", self.table)
            name = name_of_table(self.table)
            if self.name not in ("", name):
                raise ConfigurationError(
                    f"stream {self.name}: table={self.table!r} names another stream: "
                    "give a name, or a table"
                )
            object.__setattr__(self, "name", name)
        if is_table_stream(self.name):
            parse_table_stream(self.name)
            if self.fan_out is not None:
                raise ConfigurationError(
                    f"stream {self.name}: fan_out={self.fan_out!r} is for Kinesis "
                    "streams; DynamoDB pushes no records: leave it out"
                )


class StreamInfo(NamedTuple):
    """A stream as Kinesis describes it."""

    arn: str
    status: str
    # Seconds since 1970. If a stream is deleted and created again, this time changes.
    created_at: float
    retention_hours: int = 24  # AWS's default and least
    now: float = 0.0  # the service's time when it responded, in seconds since 1970
    max_record_bytes: int = 1 << 20  # AWS's default
    # True if partition keys choose the shards. If not, a key's records may be in
    # several shards and have no order.
    routes_by_key: bool = True

    def future_start(self, timestamp: float) -> str:
        """Return the text of an error if Kinesis's clock has not reached a start.

        Empty if the clock has reached the start. One second is allowed, because Kinesis
        returns its time in whole seconds.
        """
        if timestamp <= self.now + 1:
            return ""
        return (
            f"the start {time_text(timestamp)} is in the future, because Kinesis's "
            f"time is {time_text(self.now)}; use LATEST to begin with what comes from "
            "now on"
        )

    def expired_start(self, timestamp: float) -> str:
        """Return the text of a warning if records since a start may have expired.

        Empty if the stream still holds all records that arrived since the time.
        """
        oldest = self.now - self.retention_hours * 3600.0
        if max(timestamp, self.created_at) >= oldest:
            return ""
        return (
            f"the start is {time_text(timestamp)}, but the stream holds only records "
            f"since {time_text(oldest)}, because its retention is "
            f"{self.retention_hours} hours"
        )


class Shard(NamedTuple):
    """A shard from ListShards, or a child from its parent's last GetRecords response.

    It may name parents that have expired.
    """

    shard_id: str
    first_hash: int
    last_hash: int
    parents: tuple[str, ...] = ()
    # Of a closed shard: no record of the shard follows this number. None if the shard
    # is open.
    ending_sequence_number: str | None = None

    @property
    def closed(self) -> bool:
        """True if the shard was split or merged, and takes no more records."""
        return self.ending_sequence_number is not None

    @property
    def is_point(self) -> bool:
        """True if the shard has no hash keys, and only a place among them."""
        return self.first_hash == self.last_hash


class Interval(NamedTuple):
    """The hash keys ``first`` to ``last`` of one stream, both included."""

    stream_arn: str
    first: int
    last: int


# The intervals that one client consumes, sorted by stream and first hash key.
Range = tuple[Interval, ...]


class FanOutUse(NamedTuple):
    """The way in which a client reads a stream for which fan-out was requested."""

    consumer: str  # the stream consumer's name
    problem: str = ""  # why the client polls instead; empty if it does not


def check_consumer(fan_out: object, stream: str) -> str:
    """Return a consumer's name or ARN. Raise ConfigurationError for other values.

    ``stream`` is the name or ARN of the stream, to which the consumer must belong.
    """
    text = fan_out if isinstance(fan_out, str) else ""
    parts = CONSUMER_ARN.fullmatch(text)
    if parts is None and not CONSUMER_NAME.fullmatch(text):
        raise ConfigurationError(
            f"fan_out={fan_out!r} must be the name of a stream consumer (1 to 128 of "
            "a-z, A-Z, 0-9, _ . -) or its ARN"
        )
    if parts is None:
        return text
    of_stream = parts[1]
    known = of_stream if stream.startswith("arn:") else of_stream.rpartition("/")[2]
    if stream != known:
        raise ConfigurationError(
            f"fan_out={fan_out!r} is a consumer of {of_stream}, not of {stream}: use "
            "the name or ARN of a consumer of the stream"
        )
    return text


def consumer_name(fan_out: str) -> str:
    """Return a consumer's name from its name or ARN."""
    parts = CONSUMER_ARN.fullmatch(fan_out)
    return fan_out if parts is None else parts[2]
