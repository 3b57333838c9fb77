"""Define the page's model, which is sent as JSON, and build it from a group's report.

docs/dashboard.md describes the model.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from kinesumer.model.streams import stream_name
from kinesumer.ops.group.status import GroupReport, ShardReport, StreamReport


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event between two polls."""

    kind: str
    text: str
    client_id: str | None = None
    stream: str | None = None
    at: float = 0.0  # the time of the poll that found the event, in seconds since 1970
    number: int = 0  # a number that is higher for each later event of this server


class DashboardInfo(msgspec.Struct, frozen=True):
    """The app that the dashboard shows, and the server's options."""

    app: str
    table: str
    region: str = ""
    control: bool = False  # whether the server accepts changes with the token
    records: bool = False  # whether it returns records to requests with the token
    letters: bool = False  # whether it returns dead letters to requests with the token


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """The values in one stream's band that the stream's report lacks."""

    slot: int  # the number of its colour in charts, fixed while the server runs
    lanes: int
    # The lane of each visible shard, by its id and in the order of hash keys: 0 at the
    # top, waiting children below their parents.
    lane: dict[str, int]
    records_per_second: float | None


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that describe the whole fleet."""

    clients: int
    shards: int  # except ended shards and those that wait for their parents
    owned: int
    neglected: int  # shards that have no live owner and aren't paused
    paused: int
    millis_behind_latest: int | None
    caught_up: bool | None  # whether all shards are
    records_per_second: float | None
    # The share of the handlers' calls that failed in the last minute, and the records
    # that became dead letters or were skipped; None if nothing failed.
    failing_share: float | None
    failed_records: int | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's values over the last hour, one for each of the history's times."""

    stream_arn: str
    name: str
    slot: int  # as in the stream's band
    values: list[float | None]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the last hour; times are in seconds since 1970."""

    times: list[int]
    millis_behind: list[Line]
    records_per_second: list[Line]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    info: DashboardInfo
    report: GroupReport
    at: float  # when the rows were read, in seconds since 1970
    # How old the rows and the lags were when this state was sent; None if never read.
    age_seconds: float | None = None
    lag_age_seconds: float | None = None
    every_seconds: float  # the time between two polls
    # Why the rows can't be read. The other fields then keep their last values.
    trouble: str | None = None
    totals: Totals
    # The number of each client's colour and pattern, fixed while the server runs.
    slots: dict[str, int] = {}
    bands: dict[str, Band]  # by stream ARN
    events: list[Event] = []
    history: History = History(times=[], millis_behind=[], records_per_second=[])


SLOTS = 32  # the page's palette: eight hues, each plain and with three patterns


def build_state(
    report: GroupReport,
    stream_slots: Mapping[str, int] = MappingProxyType({}),
    **fields: Any,
) -> State:
    """Return the page's model. ``fields`` are other fields of ``State``."""
    bands = {}
    for stream in report.streams:
        lane = assign_lanes(stream.shards)
        bands[stream.stream_arn] = Band(
            slot=stream_slots.get(stream.stream_arn, 0),
            lanes=1 + max(lane.values(), default=0),
            lane=lane,
            records_per_second=_reported_rate(stream),
        )
    return State(report=report, totals=_totals(report, bands), bands=bands, **fields)


def _totals(report: GroupReport, bands: Mapping[str, Band]) -> Totals:
    shards = [
        shard
        for stream in report.streams
        for shard in stream.shards
        if shard.state not in ("ended", "waiting")
    ]
    rates = [band.records_per_second for band in bands.values()]
    known_rates = [rate for rate in rates if rate is not None]
    lags = [one.millis_behind_latest for one in report.streams]
    known_lags = [lag for lag in lags if lag is not None]
    failures = [one.failures for one in report.streams if one.failures is not None]
    calls = sum(one.calls for one in failures)
    failed = sum(one.failed_calls for one in failures)
    return Totals(
        clients=len(report.members),
        shards=len(shards),
        owned=sum(shard.state in ("owned", "moving") for shard in shards),
        neglected=sum(shard.is_unconsumed for shard in shards),
        paused=sum(shard.paused is not None for shard in shards),
        millis_behind_latest=max(known_lags, default=None),
        caught_up=_all_caught_up(report),
        records_per_second=sum(known_rates) if known_rates else None,
        failing_share=failed / max(1, calls) if failures else None,
        failed_records=sum(one.dead_letters + one.skipped_records for one in failures)
        if failures
        else None,
    )


def _all_caught_up(report: GroupReport) -> bool | None:
    found = {
        shard.caught_up
        for stream in report.streams
        for shard in stream.shards
        if shard.state != "ended"
    }
    return False if False in found else True if found == {True} else None


def _reported_rate(stream: StreamReport) -> float | None:
    """Return the records per second that clients report; None if they report none."""
    loads = [shard.load for shard in stream.shards if shard.load is not None]
    return sum(load.records_per_second for load in loads) if loads else None


def assign_lanes(shards: Sequence[ShardReport]) -> dict[str, int]:
    """Return the lane of each visible shard, by its id and in hash-key order.

    Shards that are read are in lane 0. A waiting child is one lane below the lowest of
    its parents, which remain visible until no child waits for them. If shards overlap
    nevertheless, as after a repair of rows, some are moved to lower lanes.
    """
    waiting = [shard for shard in shards if shard.state == "waiting"]
    awaited = {parent for shard in waiting for parent in shard.parents}
    visible = [s for s in shards if s.state != "ended" or s.shard_id in awaited]
    order = sorted(visible, key=lambda shard: (shard.first_hash, shard.shard_id))
    lanes: dict[str, int] = {}
    filled: dict[int, str] = {}  # the last hash key, whose texts have one length
    for depth, generation in enumerate(_generations(order)):
        for shard in generation:
            lane = depth
            while filled.get(lane, "") >= shard.first_hash:
                lane += 1
            lanes[shard.shard_id], filled[lane] = lane, shard.last_hash
    return {shard.shard_id: lanes[shard.shard_id] for shard in order}


def _generations(shards: Sequence[ShardReport]) -> Iterator[list[ShardReport]]:
    """Yield the shards without unfinished parents, then their children, and so on."""
    left = {shard.shard_id: shard for shard in shards}
    while left:
        generation = [
            shard
            for shard in left.values()
            if shard.state != "waiting" or left.keys().isdisjoint(shard.parents)
        ]
        # Only a manual edit can make rows name each other as parents.
        generation = generation or list(left.values())
        yield generation
        for shard in generation:
            del left[shard.shard_id]


def assign_slots(known: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Return the colour slot of each client or stream; known ones keep theirs.

    Others get the first free slot; slots without a pattern come first. If no slot is
    free, they get the least used one.
    """
    ordered = sorted(set(names))
    slots = {name: known[name] for name in ordered if name in known}
    used = Counter(slots.values())
    for name in ordered:
        if name not in slots:
            slots[name] = min(range(SLOTS), key=lambda slot: used[slot])
            used[slots[name]] += 1
    return slots


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
            if (rate := _reported_rate(stream)) is not None:
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
