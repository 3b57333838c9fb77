"""The last hour, kept in memory: lag and throughput of each stream."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.dashboard.model import History, Line
from kinesumer.model import stream_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEPT_SECONDS = 3600
MOST_STREAMS = 12
"""Lines that a person can tell apart: of more streams those with most to show."""


class Point(NamedTuple):
    """What one look at all streams found, by ARN; what isn't known isn't there."""

    at: float
    """Seconds since 1970."""
    millis_behind: Mapping[str, int]
    records_per_second: Mapping[str, float]


class Hour:
    """Points of the last hour, oldest first."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque()

    def add(self, point: Point) -> None:
        """Keep a point, and drop what is older than an hour."""
        self._points.append(point)
        while self._points[0].at < point.at - KEPT_SECONDS:
            self._points.popleft()

    def lines(self) -> History:
        """Return it as the page wants it: a list of values for each line."""
        points = list(self._points)
        return History(
            times=[int(point.at) for point in points],
            millis_behind=_lines([point.millis_behind for point in points]),
            records_per_second=_lines([point.records_per_second for point in points]),
        )


def _lines(found: Iterable[Mapping[str, float]]) -> list[Line]:
    values = list(found)
    peaks: dict[str, float] = {}
    for point in values:
        for arn, value in point.items():
            peaks[arn] = max(value, peaks.get(arn, 0))
    busiest = sorted(peaks, key=lambda arn: (-peaks[arn], arn))[:MOST_STREAMS]
    return [
        Line(
            stream_arn=arn,
            name=stream_name(arn),
            values=[_rounded(point.get(arn)) for point in values],
        )
        for arn in sorted(busiest)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
