"""Keep the lag and the rate of each stream over the last hour, for the charts."""

from __future__ import annotations

from collections import defaultdict, deque
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.streams import stream_name
from kinesumer.ops.dashboard.model import History, Line, reported_rate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kinesumer.ops.group.status import StreamReport

Values = defaultdict[str, list[float]]  # the values of each stream within one step

RETAINED_SECONDS = 3600
STEP_SECONDS = 10  # the finest resolution that is visible on a chart of one hour
# The maximum number of lines in a chart, which shows the streams with the highest
# peaks.
MAX_STREAMS = 12


class Step(NamedTuple):
    """The values measured within ten seconds."""

    at: float  # the start of the step, in seconds since 1970
    millis_behind: Values
    records_per_second: Values


class StreamHistory:
    """The steps of the last hour, oldest first."""

    def __init__(self) -> None:
        self._steps: deque[Step] = deque()

    def add(self, at: float, streams: Iterable[StreamReport]) -> None:
        """Add what a poll shows of each stream, and drop steps older than an hour."""
        if not self._steps or at >= self._steps[-1].at + STEP_SECONDS:
            self._steps.append(Step(at, defaultdict(list), defaultdict(list)))
        step = self._steps[-1]
        for stream in streams:
            millis = 0 if stream.caught_up else stream.millis_behind_latest
            if millis is not None:
                step.millis_behind[stream.stream_arn].append(millis)
            if (rate := reported_rate(stream)) is not None:
                step.records_per_second[stream.stream_arn].append(rate)
        while self._steps[0].at < at - RETAINED_SECONDS:
            self._steps.popleft()

    def lines(self, slots: Mapping[str, int]) -> History:
        """Return the lines of both charts: each step's largest lag and mean rate."""
        steps = list(self._steps)
        return History(
            times=[int(step.at) for step in steps],
            millis_behind=_lines([step.millis_behind for step in steps], max, slots),
            records_per_second=_lines(
                [step.records_per_second for step in steps], fmean, slots
            ),
        )


def _lines(
    steps: Sequence[Mapping[str, list[float]]],
    summarize: Callable[[list[float]], float],
    slots: Mapping[str, int],
) -> list[Line]:
    points = [
        {arn: round(summarize(values), 1) for arn, values in step.items()}
        for step in steps
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
            slot=slots.get(arn, 0),
            values=[point.get(arn) for point in points],
        )
        for arn in sorted(busiest)
    ]
