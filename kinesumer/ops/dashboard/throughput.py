"""Estimate each stream's records per second, and keep the last hour's lag and rate.

The state store's rows contain positions, but no record counts. So the records between
two positions of a shard are read again and counted, for some of the shards.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.streams import stream_name
from kinesumer.ops.dashboard.model import History, Line
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.sampling import SHARD_ERRORS, sample_limit
from kinesumer.ops.group.shard_reads import PacedReader, for_each_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StreamSource

Positions = dict["ShardKey", "Position"]
Values = defaultdict[str, list[float]]  # the values of each stream within one step

# The most shards that are read per stream and measurement. The others are assumed to
# have the average rate of these.
SAMPLED_SHARDS = 12
RETAINED_SECONDS = 3600
STEP_SECONDS = 10  # the finest resolution that is visible on a chart of one hour
# The maximum number of lines in a chart, which shows the streams with the highest
# peaks.
MAX_STREAMS = 12


class Advance(NamedTuple):
    """A shard whose position has advanced."""

    shard: ShardKey
    old: Position
    new: Position


class Throughput:
    """Measures the rates of streams from samples of their shards."""

    def __init__(self, clients: ClientFactory, roles: Roles = NO_ROLES) -> None:
        self._clients, self._roles = clients, roles
        self._before: tuple[Positions, float] | None = None
        self._record_bytes: dict[str, float] = {}
        self._turn = 0

    async def measure(self, positions: Positions, now: float) -> dict[str, float]:
        """Return each readable stream's records per second since the last call."""
        before, self._before = self._before, (positions, now)
        if before is None or now <= before[1]:
            return {}
        self._turn += 1
        streams = advances(before[0], positions)
        # A stream whose positions have not moved is idle, and isn't read.
        counts = {arn: 0.0 for arn, moved in streams.items() if not moved}
        reader = PacedReader()

        async def of_stream(arn: str, source: StreamSource) -> None:
            count = await self._stream(reader, source, streams[arn])
            if count is not None:
                counts[arn] = count

        moving = [arn for arn, moved in streams.items() if moved]
        await for_each_stream(self._clients, moving, of_stream, self._roles)
        seconds = now - before[1]
        return {arn: count / seconds for arn, count in counts.items()}

    async def _stream(
        self, reader: PacedReader, source: StreamSource, moved: Sequence[Advance]
    ) -> float | None:
        """Estimate how many records of a stream were processed; None if unknown."""
        sample = choose_shards(moved, self._turn)
        counts = await asyncio.gather(
            *(self._shard(reader, source, one) for one in sample)
        )
        known = [count for count in counts if count is not None]
        return len(moved) * sum(known) / len(known) if known else None

    async def _shard(
        self, reader: PacedReader, source: StreamSource, moved: Advance
    ) -> float | None:
        shard, arn = moved.shard, moved.shard.stream_arn
        limit = sample_limit(self._record_bytes.get(arn))
        try:
            page = await reader.read(source, shard, moved.old, limit)
            if page.records:
                self._record_bytes[arn] = page.wire_bytes / len(page.records)
            count = count_until(page, moved.new)
            if count is not None:
                return count
            # The page ends before the new position. The number of records from there on
            # follows from the page's rate and the arrival time at the new position.
            at = moved.new._replace(sub_sequence_number=0)
            last = await reader.read(source, shard, at, 1)
        except SHARD_ERRORS:
            return None
        return extrapolate(page, last)


def advances(old: Positions, new: Positions) -> dict[str, list[Advance]]:
    """Return for each stream the shards whose positions have advanced."""
    streams: dict[str, list[Advance]] = {key.stream_arn: [] for key in new}
    for key, position in new.items():
        if key in old and position > old[key]:
            streams[key.stream_arn].append(Advance(key, old[key], position))
    return streams


def choose_shards(moved: Sequence[Advance], turn: int) -> list[Advance]:
    """Return some of the shards, evenly spaced, and different ones each turn."""
    count = min(SAMPLED_SHARDS, len(moved))
    step = len(moved) / count
    return [moved[int(i * step + turn) % len(moved)] for i in range(count)]


def count_until(page: Page, end: Position) -> float | None:
    """Return the number of a page's records at or before a position.

    Return None if the page may end before that position. An aggregate counts as one
    record.
    """
    order = (len(end.sequence_number), end.sequence_number)
    numbers = [record.sequence_number for record in page.records]
    count = sum((len(number), number) <= order for number in numbers)
    reached = count < len(numbers) or end.sequence_number in numbers
    return float(count) if reached or not page.millis_behind else None


def extrapolate(page: Page, last: Page) -> float | None:
    """Estimate how many records lie between a page's start and another page's start.

    The rate of the first page is assumed for all of them. Return None if the records
    have no arrival times.
    """
    times = [
        record.approximate_arrival_timestamp
        for record in (*page.records[:1], *page.records[-1:], *last.records[:1])
    ]
    first, end, goal = (*times, None, None, None)[:3]
    if first is None or end is None or goal is None or end <= first:
        return None
    return len(page.records) * max(1.0, (goal - first) / (end - first))


class Step(NamedTuple):
    """The values measured within ten seconds."""

    at: float  # the start of the step, in seconds since 1970
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
        """Add the values of a poll by stream ARN, and drop steps older than an hour."""
        if not self._steps or at >= self._steps[-1].at + STEP_SECONDS:
            self._steps.append(Step(at, defaultdict(list), defaultdict(list)))
        step = self._steps[-1]
        for arn, millis in millis_behind.items():
            step.millis_behind[arn].append(millis)
        for arn, rate in records_per_second.items():
            step.records_per_second[arn].append(rate)
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
