"""Keep the last hour's lag and throughput of each stream in memory."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.dashboard.model import History, Line
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RETAINED_SECONDS = 3600
STEP_SECONDS = 10
"""The resolution that is visible on a chart of one hour."""
MAX_STREAMS = 12
"""The number of distinguishable lines; the streams with the highest peaks are shown."""

Values = defaultdict[str, list[float]]
"""The values of each stream within one step."""


class Step(NamedTuple):
    """The known values of ten seconds."""

    at: float
    """The start of the step, in seconds since 1970."""
    millis_behind: Values
    records_per_second: Values


class LagHistory:
    """The steps of the last hour, oldest first."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def add(
        self,
        at: float,
        millis_behind: Mapping[str, float],
        records_per_second: Mapping[str, float],
    ) -> None:
        """Add the values of a poll, by ARN, and drop steps older than an hour."""
        if not self._steps or at >= self._steps[-1].at + STEP_SECONDS:
            self._steps.append(Step(at, defaultdict(list), defaultdict(list)))
        step = self._steps[-1]
        for arn, millis in millis_behind.items():
            step.millis_behind[arn].append(millis)
        for arn, rate in records_per_second.items():
            step.records_per_second[arn].append(rate)
        while self._steps[0].at < at - RETAINED_SECONDS:
            self._steps.popleft()

    def lines(self) -> History:
        """Return a list of values for each line of the page's charts.

        A step's value is the largest lag or the mean throughput.
        """
        steps = list(self._steps)
        return History(
            times=[int(step.at) for step in steps],
            millis_behind=_lines([step.millis_behind for step in steps], max),
            records_per_second=_lines(
                [step.records_per_second for step in steps], _mean
            ),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _lines(
    steps: Sequence[Mapping[str, list[float]]],
    summarize: Callable[[list[float]], float],
) -> list[Line]:
    points = [
        {arn: summarize(values) for arn, values in step.items()} for step in steps
    ]
    peaks: dict[str, float] = {}
    for point in points:
        for arn, value in point.items():
            peaks[arn] = max(value, peaks.get(arn, 0))
    busiest = sorted(peaks, key=lambda arn: (-peaks[arn], arn))[:MAX_STREAMS]
    return [
        Line(
            stream_arn=arn,
            name=stream_name(arn),
            values=[_rounded(point.get(arn)) for point in points],
        )
        for arn in sorted(busiest)
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
