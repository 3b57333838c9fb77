"""The filters of a bounded read that choose streams, shards and arrival times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from math import inf
from typing import Any, NamedTuple

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from kinesumer.model.positions import SEEN_SLACK_SECONDS, ShardPosition, StreamOffset
from kinesumer.model.streams import Start, StreamInfo, stream_name

OF_SHARD = ("stream", "stream_arn", "shard_id")


class PushedFilters(NamedTuple):
    """The streams, shards and arrival times of the rows that a query asks for.

    Spark compares the arrival time of each row again.
    Kinesis does not promise that arrival times grow within a shard. So a read begins
    and ends SEEN_SLACK_SECONDS away from them.
    """

    # The values that a column may have. A column that is not a key may have any.
    texts: dict[str, frozenset[str]]
    since: float = -inf
    until: float = inf

    def has_stream(self, arn: str) -> bool:
        """Return whether a stream may have rows."""
        name = stream_name(arn)
        has_name = name in self.texts.get("stream", (name,))
        return has_name and arn in self.texts.get("stream_arn", (arn,))

    def has_shard(self, shard_id: str) -> bool:
        """Return whether a shard may have rows."""
        return shard_id in self.texts.get("shard_id", (shard_id,))

    def begin(self, position: ShardPosition, info: StreamInfo) -> ShardPosition:
        """Return where a read begins in a shard that the options begin at a position.

        A read by positions begins at them.
        """
        since = min(self.since - SEEN_SLACK_SECONDS, info.now)
        if not isinstance(position, Start) or since <= (position.timestamp or 0.0):
            return position
        if since <= info.now - info.retention_hours * 3600:
            return position
        return Start(type="AT_TIMESTAMP", timestamp=since)

    def end(
        self, ending: Start | StreamOffset | None, info: StreamInfo
    ) -> Start | StreamOffset | None:
        """Return where a read ends that the options end at a time or at positions."""
        until = self.until + SEEN_SLACK_SECONDS
        if isinstance(ending, StreamOffset) or until >= info.now:
            return ending
        if ending is not None and ending.timestamp is not None:
            until = min(until, ending.timestamp)
        return Start(type="AT_TIMESTAMP", timestamp=until)


ANY_ROW = PushedFilters({})


def push(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """Return what the filters have in common, and those that Spark has to apply."""
    pushed, rest = ANY_ROW, list[Filter]()
    for each in filters:
        if isinstance(each, IsNotNull) and each.attribute[0] in OF_SHARD:
            continue  # no row lacks its shard
        column, found = _values_of(each)
        if found is not None and column in OF_SHARD:
            found &= pushed.texts.get(column, found)
            pushed = pushed._replace(texts={**pushed.texts, column: found})
        else:
            rest.append(each)
            since, until = _times_of(each)
            pushed = pushed._replace(
                since=max(pushed.since, since), until=min(pushed.until, until)
            )
    return pushed, rest


def _values_of(each: Filter) -> tuple[str, frozenset[str] | None]:
    """Return a filter's column, and the texts that the filter permits, if it can."""
    match each:
        case EqualTo((str(column),), str(value)) | EqualNullSafe(
            (str(column),), str(value)
        ):
            return column, frozenset([value])
        case In((str(column),), values) if all(isinstance(v, str) for v in values):
            return column, frozenset(values)
    return "", None


def _times_of(each: Filter) -> tuple[float, float]:
    """Return the first and the last arrival time that a filter permits."""
    match each:
        case EqualTo(("arrived_at",), datetime() as time):
            return _seconds(time, -inf), _seconds(time, inf)
        case GreaterThan(("arrived_at",), datetime() as time) | GreaterThanOrEqual(
            ("arrived_at",), datetime() as time
        ):
            return _seconds(time, -inf), inf
        case LessThan(("arrived_at",), datetime() as time) | LessThanOrEqual(
            ("arrived_at",), datetime() as time
        ):
            return -inf, _seconds(time, inf)
    return -inf, inf


def _seconds(time: datetime, unknown: float) -> float:
    """Return a time as seconds. A time without a zone is unknown."""
    return unknown if time.tzinfo is None else time.timestamp()


class FilterTaker:
    """Defines ``pushFilters()`` of a reader, but only for a Spark that calls it.

    PySpark refuses a reader with such a method while the setting
    ``spark.sql.python.filterPushdown.enabled`` is off, as it is by default. PySpark
    compares the ``__func__`` of the method.
    """

    def __init__(self, take: Callable[[Any, Sequence[Filter]], list[Filter]]) -> None:
        self._take = take

    def __get__(self, reader: Any, _owner: type) -> Any:
        bound = partial(self._take, reader)
        bound.__func__ = DataSourceReader.pushFilters  # type: ignore[attr-defined]
        return bound
