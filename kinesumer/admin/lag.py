"""Read how far each shard's stored position is behind, and compare lags over time."""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag_trend import (
    UNKNOWN,
    LagSample,
    Trend,
    find_trend,
    page_millis_behind,
)
from kinesumer.admin.sampling import Samples, ShardSampler, sample_shards
from kinesumer.admin.snapshot import read_known_snapshot
from kinesumer.errors import ShardMissingError, TrimmedPositionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore


VERSION = 1
WINDOW_SECONDS = 60.0
"""A watched trend covers about the last minute."""


class Lags(NamedTuple):
    """The lags of shards, and the streams that couldn't be read."""

    millis: dict[ShardKey, int]
    """How far each shard's stored position is behind its tip."""
    problems: dict[str, str]
    """Why a stream couldn't be read, by its ARN."""
    retention_hours: Mapping[str, int] = MappingProxyType({})
    """How long a stream keeps records, by its ARN."""


async def read_lags(
    clients: ClientFactory,
    shards: Mapping[str, Sequence[ShardRow]],
    roles: Roles = NO_ROLES,
) -> Lags:
    """Read the lag of every shard that hasn't ended.

    A stream that can't be read is listed in the problems.
    """
    samples = await sample_shards(clients, shards, roles, _read_lag)
    millis = {key: lag for key, lag in samples.values.items() if lag is not None}
    return Lags(millis, samples.problems, samples.retention_hours)


async def _read_lag(sampler: ShardSampler, row: ShardRow) -> int | None:
    """Return the lag; None if the next record is older than the retention."""
    try:
        page = await sampler.read(row.position or row.start)
    except (ShardMissingError, TrimmedPositionError):
        return None
    return page_millis_behind(page, sampler.clock.now())


class LagMonitor:
    """Compares the lags of an app's shards with those of about a minute ago."""

    def __init__(self, app: str, table: str, roles: Roles = NO_ROLES) -> None:
        self.app, self.table = app, table
        self._roles = roles
        self._history: deque[dict[ShardKey, LagSample]] = deque()

    async def start(self, clients: ClientFactory, store: StateStore) -> None:
        """Take the first samples, without counting. Raises KinesumerError."""
        snapshot = await read_known_snapshot(store, self.app, self.table)
        shards, lag = snapshot.shards, ShardSampler.lag
        self._remember((await sample_shards(clients, shards, self._roles, lag)).values)

    async def read(self, clients: ClientFactory, store: StateStore) -> dict[str, Any]:
        """Sample again; return the comparison as JSON. Raises KinesumerError."""
        snapshot = await read_known_snapshot(store, self.app, self.table)
        samples = await sample_shards(
            clients, snapshot.shards, self._roles, ShardSampler.count_lag
        )
        before = self._remember(samples.values)
        return _report(self.app, self.table, snapshot, samples, before)

    def _remember(
        self, samples: dict[ShardKey, LagSample]
    ) -> dict[ShardKey, LagSample]:
        """Return the samples to compare with: the oldest of the window."""
        history = self._history
        history.append(samples)
        newest = _latest(samples, 0.0)
        while (
            len(history) > 2 and newest - _latest(history[1], newest) > WINDOW_SECONDS
        ):
            history.popleft()
        return history[0] if len(history) > 1 else {}


def _latest(samples: dict[ShardKey, LagSample], default: float) -> float:
    return max((sample.at for sample in samples.values()), default=default)


def _report(
    app: str,
    table: str,
    snapshot: Snapshot,
    samples: Samples[LagSample],
    before: dict[ShardKey, LagSample],
) -> dict[str, Any]:
    streams = [_stream(s.arn, snapshot, samples, before) for s in snapshot.streams]
    return {
        "version": VERSION,
        "app": app,
        "table": table,
        "seconds": _seconds_between(before.values(), samples.values.values()),
        "streams": streams,
        "problems": [
            *snapshot.corrupt,
            *(f"{s['stream_arn']}: {s['problem']}" for s in streams if s["problem"]),
        ],
    }


def _seconds_between(
    before: Iterable[LagSample], after: Iterable[LagSample]
) -> float | None:
    first = min((sample.at for sample in before), default=None)
    last = min((sample.at for sample in after), default=None)
    return None if first is None or last is None else round(last - first, 1)


def _stream(
    arn: str,
    snapshot: Snapshot,
    samples: Samples[LagSample],
    before: dict[ShardKey, LagSample],
) -> dict[str, Any]:
    rows = [row for row in snapshot.shards[arn] if row.key in samples.values]
    lags = [samples.values[row.key] for row in rows]
    counts = [lag.records for lag in lags]
    unknown = arn in samples.problems or None in counts
    slowest = _slowest(lags)
    pairs = [(samples.values[r.key], before.get(r.key)) for r in rows]
    trend = _stream_trend(slowest, pairs)
    return {
        "stream_arn": arn,
        "problem": samples.problems.get(arn),
        "retention_hours": samples.retention_hours.get(arn),
        "millis_behind_latest": slowest.millis if slowest else None,
        "records_behind": None if unknown else sum(c or 0 for c in counts),
        "records_exact": not unknown and all(lag.exact for lag in lags),
        **_trend(trend),
        "shards": [
            {
                "shard_id": row.key.shard_id,
                "state": snapshot.state(row),
                "paused": snapshot.pause(row) is not None,
                "owner": row.owner_id or None,
                **_shard(samples.values[row.key], before.get(row.key)),
            }
            for row in rows
        ],
    }


def _stream_trend(
    slowest: LagSample | None, shards: Sequence[tuple[LagSample, LagSample | None]]
) -> Trend:
    """Return the trend of a stream's slowest shard, which may change over time.

    A slowest shard that makes no progress is reported even if another shard was the
    slowest one before.
    """
    if slowest is None:
        return Trend(UNKNOWN)
    own = next((before for sample, before in shards if sample is slowest), None)
    if own is not None and own.after == slowest.after:
        return find_trend(own, slowest)
    return find_trend(_slowest(before for _, before in shards if before), slowest)


def _slowest(samples: Iterable[LagSample]) -> LagSample | None:
    known = [sample for sample in samples if sample.millis is not None]
    return max(known, key=lambda sample: sample.millis or 0, default=None)


def _shard(sample: LagSample, before: LagSample | None) -> dict[str, Any]:
    return {
        "problem": sample.problem or None,
        "millis_behind_latest": sample.millis,
        "records_behind": sample.records,
        "records_exact": sample.exact,
        **_trend(find_trend(before, sample)),
    }


def _trend(trend: Trend) -> dict[str, Any]:
    speed, left = trend.millis_per_second, trend.seconds_to_catch_up
    return {
        "trend": trend.trend,
        "millis_per_second": None if speed is None else round(speed, 1),
        "seconds_to_catch_up": None if left is None else round(left, 1),
    }
