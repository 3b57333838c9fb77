"""Read the lag of each shard's stored position, and compare lags over time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from kinesumer.aws.session import ClientFactory
from kinesumer.errors import ShardMissingError, TrimmedPositionError
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.shard_reads import (
    NOISE_MILLIS,
    LagSample,
    Samples,
    ShardSampler,
    page_millis_behind,
    sample_shards,
)
from kinesumer.ops.group.snapshot import Snapshot, read_known_snapshot
from kinesumer.ports import StateStore

# Progress is judged over about this time: by --watch, and of shards that seem stuck.
WINDOW_SECONDS = 60.0
CAUGHT_UP, FALLING, STEADY = "caught up", "falling", "steady"
GROWING, STALLED, UNKNOWN = "growing", "stalled", "unknown"


class Lags(NamedTuple):
    """The lags of shards, and the streams that couldn't be read."""

    millis: Mapping[ShardKey, int]  # from each shard's stored position to its tip
    problems: Mapping[str, str]  # why a stream couldn't be read, by its ARN
    # How long a stream keeps records, by its ARN.
    retention_hours: Mapping[str, int] = MappingProxyType({})


NO_LAGS = Lags({}, {})


async def read_lags(
    clients: ClientFactory,
    shards: Mapping[str, Sequence[ShardRow]],
    roles: Roles = NO_ROLES,
) -> Lags:
    """Read the lag of every unfinished shard; report unreadable streams as problems."""
    samples = await sample_shards(clients, shards, roles, _read_lag)
    millis = {key: lag for key, lag in samples.values.items() if lag is not None}
    problems = {arn: str(error) for arn, error in samples.problems.items()}
    return Lags(millis, problems, samples.retention_hours)


async def _read_lag(sampler: ShardSampler, row: ShardRow) -> int | None:
    """Return the lag; None if the next record is older than the retention."""
    try:
        point = await sampler.read(row.position or row.start)
    except (ShardMissingError, TrimmedPositionError):
        return None
    return page_millis_behind(point.page, sampler.now())


class Trend(NamedTuple):
    """The direction in which a lag moves."""

    trend: str
    # The growth of the lag: 1,000 if nothing is read; None after a single sample.
    millis_per_second: float | None = None
    seconds_to_catch_up: float | None = None  # None if the lag doesn't fall


class LagFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a shard or a stream, and its trend; see docs/lag.md."""

    problem: str | None
    millis_behind_latest: int | None
    records_behind: int | None
    records_exact: bool
    trend: str
    millis_per_second: float | None
    seconds_to_catch_up: float | None


class ShardLag(LagFigures, frozen=True, kw_only=True):
    """The lag of a shard."""

    shard_id: str
    state: str
    paused: bool
    owner: str | None


class StreamLag(LagFigures, frozen=True, kw_only=True):
    """The lag of a stream, which is that of its slowest shard."""

    stream_arn: str
    retention_hours: int | None
    shards: list[ShardLag]


class LagReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``kinesumer lag``."""

    app: str
    table: str
    seconds: float | None
    streams: list[StreamLag]
    problems: list[str]


def find_trend(
    before: LagSample | None, after: LagSample, expected_millis: int = NOISE_MILLIS
) -> Trend:
    """Compare two samples of a shard, or of a stream's slowest shard.

    A lag of up to ``expected_millis`` is one of a shard that is caught up. A change
    smaller than a usual step between two commits counts as steady.
    """
    noise = max(expected_millis, NOISE_MILLIS)
    if after.millis is None:
        return Trend(UNKNOWN)
    speed, change = None, 0
    if before is not None and before.millis is not None and after.at > before.at:
        change = after.millis - before.millis
        speed = change / (after.at - before.at)
    if after.millis <= expected_millis:
        return Trend(CAUGHT_UP, speed, 0.0)
    if before is None or speed is None:
        return Trend(UNKNOWN)
    if before.after == after.after:
        return Trend(STALLED, speed)
    if change > noise:
        return Trend(GROWING, speed)
    if change < -noise or moves_fast(-speed):
        return Trend(FALLING, speed, after.millis / -speed)
    return Trend(STEADY, speed)


def moves_fast(millis_per_second: float) -> bool:
    """Return whether a lag moves by half of the time that passes, not by chance."""
    return 2 * millis_per_second >= 1000


class LagMonitor:
    """Compares the lags of an app's shards with those of about a minute ago."""

    def __init__(self, app: str, table: str, roles: Roles = NO_ROLES) -> None:
        self._app, self._table, self._roles = app, table, roles
        self._history: deque[dict[ShardKey, LagSample]] = deque()

    async def start(self, clients: ClientFactory, store: StateStore) -> None:
        """Take the first samples, without counting records. Raises KinesumerError."""
        snapshot = await read_known_snapshot(store, self._app, self._table)
        shards, measure = snapshot.shards, ShardSampler.lag
        samples = await sample_shards(clients, shards, self._roles, measure)
        self._remember(samples.values)

    async def read(self, clients: ClientFactory, store: StateStore) -> LagReport:
        """Sample again, and return the comparison. Raises KinesumerError."""
        snapshot = await read_known_snapshot(store, self._app, self._table)
        samples = await sample_shards(
            clients, snapshot.shards, self._roles, partial(ShardSampler.lag, count=True)
        )
        before = self._remember(samples.values)
        streams = [_stream(s.arn, snapshot, samples, before) for s in snapshot.streams]
        # Without samples, the time between them is unknown.
        seconds = None
        if before and samples.values:
            first, last = (
                min(sample.at for sample in each.values())
                for each in (before, samples.values)
            )
            seconds = round(last - first, 1)
        return LagReport(
            app=self._app,
            table=self._table,
            seconds=seconds,
            streams=streams,
            problems=[
                *snapshot.corrupt,
                *(f"{s.stream_arn}: {s.problem}" for s in streams if s.problem),
            ],
        )

    def _remember(
        self, samples: dict[ShardKey, LagSample]
    ) -> dict[ShardKey, LagSample]:
        """Store the samples, and return the oldest samples of the last minute."""
        history = self._history
        history.append(samples)
        # Keep one older sample, so that comparisons cover at least the window.
        newest = _latest(samples, 0.0)
        while (
            len(history) > 2 and newest - _latest(history[1], newest) > WINDOW_SECONDS
        ):
            history.popleft()
        return history[0] if len(history) > 1 else {}


def _latest(samples: dict[ShardKey, LagSample], default: float) -> float:
    return max((sample.at for sample in samples.values()), default=default)


def _stream(
    arn: str,
    snapshot: Snapshot,
    samples: Samples[LagSample],
    before: dict[ShardKey, LagSample],
) -> StreamLag:
    rows = [row for row in snapshot.shards[arn] if row.key in samples.values]
    expected = [snapshot.expected_lag_millis(row.owner) for row in rows]
    lags = [samples.values[row.key] for row in rows]
    olds = [before.get(row.key) for row in rows]
    counts = [lag.records for lag in lags]
    unknown = arn in samples.problems or None in counts
    shards = list(zip(olds, lags, expected, strict=True))
    slowest = slowest_of(lags)
    # The trend is that of a shard that is caught up only if all of them are.
    late = [lag for _, lag, most in shards if (lag.millis or 0) > most]
    return StreamLag(
        stream_arn=arn,
        problem=str(samples.problems[arn]) if arn in samples.problems else None,
        retention_hours=samples.retention_hours.get(arn),
        millis_behind_latest=slowest.millis if slowest else None,
        records_behind=None if unknown else sum(c or 0 for c in counts),
        records_exact=not unknown and all(lag.exact for lag in lags),
        **_rounded(_stream_trend(slowest_of(late or lags), shards)),
        shards=[
            ShardLag(
                shard_id=row.key.shard_id,
                state=snapshot.state(row),
                paused=snapshot.pause(row) is not None,
                owner=row.owner_id or None,
                problem=lag.problem or None,
                millis_behind_latest=lag.millis,
                records_behind=lag.records,
                records_exact=lag.exact,
                **_rounded(find_trend(old, lag, most)),
            )
            for row, (old, lag, most) in zip(rows, shards, strict=True)
        ],
    )


def _rounded(trend: Trend) -> dict[str, Any]:
    return {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in trend._asdict().items()
    }


def _stream_trend(
    slowest: LagSample | None, shards: Sequence[tuple[LagSample | None, LagSample, int]]
) -> Trend:
    """Return the trend of the slowest shard, which may be another one in each sample.

    If the slowest shard makes no progress, this is reported even if another shard was
    slowest before.
    """
    if slowest is None:
        return Trend(UNKNOWN)
    own, expected = next(
        (before, most) for before, sample, most in shards if sample is slowest
    )
    if own is not None and own.after == slowest.after:
        return find_trend(own, slowest, expected)
    before = slowest_of(before for before, _, _ in shards if before)
    return find_trend(before, slowest, expected)


def slowest_of(samples: Iterable[LagSample]) -> LagSample | None:
    """Return the sample with the largest lag; None if no lag is known."""
    known = [sample for sample in samples if sample.millis is not None]
    return max(known, key=lambda sample: sample.millis or 0, default=None)
