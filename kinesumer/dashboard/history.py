"""The last hour, kept in memory: lag and throughput of each stream."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.dashboard.model import History, Line
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KEPT_SECONDS = 3600
STEP_SECONDS = 10
"""As close as a person can tell on a chart of an hour."""
MOST_STREAMS = 12
"""Lines that a person can tell apart: of more streams those with most to show."""

Values = defaultdict[str, list[float]]
"""By stream what was found within one step."""


class Step(NamedTuple):
    """What the looks within ten seconds found; what isn't known isn't there."""

    at: float
    """When the step began, in seconds since 1970."""
    millis_behind: Values
    records_per_second: Values


class LagHistory:
    """Steps of the last hour, oldest first."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def add(
        self,
        at: float,
        millis_behind: Mapping[str, float],
        records_per_second: Mapping[str, float],
    ) -> None:
        """Keep what a look found, by ARN, and drop what is older than an hour."""
        if not self._steps or at >= self._steps[-1].at + STEP_SECONDS:
            self._steps.append(Step(at, defaultdict(list), defaultdict(list)))
        step = self._steps[-1]
        for arn, millis in millis_behind.items():
            step.millis_behind[arn].append(millis)
        for arn, rate in records_per_second.items():
            step.records_per_second[arn].append(rate)
        while self._steps[0].at < at - KEPT_SECONDS:
            self._steps.popleft()

    def lines(self) -> History:
        """Return it as the page wants it: a list of values for each line.

        Of a step the largest lag and the mean throughput.
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
    sum_up: Callable[[list[float]], float],
) -> list[Line]:
    points = [{arn: sum_up(found) for arn, found in step.items()} for step in steps]
    peaks: dict[str, float] = {}
    for point in points:
        for arn, value in point.items():
            peaks[arn] = max(value, peaks.get(arn, 0))
    busiest = sorted(peaks, key=lambda arn: (-peaks[arn], arn))[:MOST_STREAMS]
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
