"""The filters of a bounded read that choose streams, shards and arrival times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
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
ARRIVAL = "arrived_at"


class PushedFilters(NamedTuple):
    """What a read has to find. Spark still compares the arrival time of each row.

    Kinesis does not promise that arrival times grow within a shard. So a read begins
    and ends SEEN_SLACK_SECONDS away from them.
    """

    texts: dict[str, frozenset[str]]  # of columns; those of others may be any
    since: float = -inf
    until: float = inf

    def has_stream(self, arn: str) -> bool:
        """Return whether a stream may have rows."""
        values = {"stream": stream_name(arn), "stream_arn": arn}
        return all(
            text in self.texts.get(name, (text,)) for name, text in values.items()
        )

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
        case EqualTo((str(column),), str(value)):
            return column, frozenset([value])
        case EqualNullSafe((str(column),), str(value)):
            return column, frozenset([value])
        case In((str(column),), values) if all(isinstance(v, str) for v in values):
            return column, frozenset(values)
    return "", None


def _times_of(each: Filter) -> tuple[float, float]:
    """Return the first and the last arrival time that a filter permits."""
    match each:
        case EqualTo((column,), datetime() as time) if column == ARRIVAL:
            return _seconds(time, -inf), _seconds(time, inf)
        case GreaterThan((column,), datetime() as time) if column == ARRIVAL:
            return _seconds(time, -inf), inf
        case GreaterThanOrEqual((column,), datetime() as time) if column == ARRIVAL:
            return _seconds(time, -inf), inf
        case LessThan((column,), datetime() as time) if column == ARRIVAL:
            return -inf, _seconds(time, inf)
        case LessThanOrEqual((column,), datetime() as time) if column == ARRIVAL:
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

    def __get__(self, reader: Any, _owner: type) -> _Bound:
        return _Bound(self._take, reader)


class _Bound:
    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(
        self, take: Callable[[Any, Sequence[Filter]], list[Filter]], reader: Any
    ) -> None:
        self._take, self._reader = take, reader

    def __call__(self, filters: Sequence[Filter]) -> Iterator[Filter]:
        return iter(self._take(self._reader, filters))
