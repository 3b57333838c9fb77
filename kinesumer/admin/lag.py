"""How far each shard's stored position is behind, as Kinesis tells."""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin import snapshot
from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag_trend import (
    UNKNOWN,
    LagSample,
    Trend,
    find_trend,
    page_millis_behind,
)
from kinesumer.admin.sampling import count_lag, sample_lag
from kinesumer.admin.shard_reads import PacedReader, ServiceClock, for_each_stream
from kinesumer.admin.snapshot import state
from kinesumer.errors import ShardMissingError, TrimmedPositionError
from kinesumer.runtime.tasks import gather_or_cancel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StreamSource


class Lags(NamedTuple):
    """What Kinesis said of streams and shards."""

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
    """Ask Kinesis for the lag of every shard that hasn't ended.

    A stream that can't be read is a problem of that stream only.
    """
    asking = PacedReader()
    millis: dict[ShardKey, int] = {}
    retention: dict[str, int] = {}

    async def of_stream(arn: str, source: KinesisSource) -> None:
        info = await source.describe()
        retention[arn] = info.retention_hours
        clock = ServiceClock(info.now)
        rows = [row for row in shards[arn] if not row.ended]
        found = await gather_or_cancel(
            _of_shard(asking, source, r, clock) for r in rows
        )
        for row, waited in zip(rows, found, strict=True):
            if waited is not None:
                millis[row.key] = waited

    faults = await for_each_stream(clients, shards, of_stream, roles)
    problems = {arn: str(error) for arn, error in faults.items()}
    return Lags(millis, problems, retention)


async def _of_shard(
    asking: PacedReader, source: StreamSource, row: ShardRow, clock: ServiceClock
) -> int | None:
    """Read one record after the position; None if Kinesis has none of it any more."""
    after = row.position or row.start
    try:
        return page_millis_behind(
            await asking.read(source, row.key, after, 1), clock.now()
        )
    except (ShardMissingError, TrimmedPositionError):
        return None


if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore, StreamSource

    LookAt = Callable[
        [PacedReader, StreamSource, ShardRow, ServiceClock],
        Coroutine[Any, Any, LagSample],
    ]


VERSION = 1


WINDOW_SECONDS = 60.0
"""While it is watched, a trend is that of about the last minute."""


class LagObservation(NamedTuple):
    """All shards at about one moment."""

    found: Snapshot
    looks: dict[ShardKey, LagSample]
    problems: dict[str, str]
    retention_hours: dict[str, int]


class LagMonitor:
    """What is asked, and what was seen lately."""

    def __init__(self, app: str, table: str, roles: Roles = NO_ROLES) -> None:
        self.app, self.table = app, table
        self._roles = roles
        self._seen: deque[dict[ShardKey, LagSample]] = deque()

    async def begin(self, clients: ClientFactory, store: StateStore) -> None:
        """Look for the first time, without counting. Raises KinesumerError."""
        found = await snapshot.take_known(store, self.app, self.table)
        self._before((await _look(clients, found, self._roles, sample_lag)).looks)

    async def answer(self, clients: ClientFactory, store: StateStore) -> dict[str, Any]:
        """Look again, and compare with before; return it as JSON."""
        found = await snapshot.take_known(store, self.app, self.table)
        seen = await _look(clients, found, self._roles, count_lag)
        before = self._before(seen.looks)
        return _report(self.app, self.table, seen, before)

    def _before(self, looks: dict[ShardKey, LagSample]) -> dict[ShardKey, LagSample]:
        """Return what to compare with: the oldest look of the window."""
        self._seen.append(looks)
        newest = max((sample_lag.at for sample_lag in looks.values()), default=0.0)
        while len(self._seen) > 2 and _age(self._seen[1], newest) > WINDOW_SECONDS:
            self._seen.popleft()
        return self._seen[0] if len(self._seen) > 1 else {}


def _age(looks: dict[ShardKey, LagSample], now: float) -> float:
    return now - max((sample_lag.at for sample_lag in looks.values()), default=now)


async def _look(
    clients: ClientFactory, found: Snapshot, roles: Roles, at: LookAt
) -> LagObservation:
    asking = PacedReader()
    seen = LagObservation(found, {}, {}, {})

    async def of_stream(arn: str, source: KinesisSource) -> None:
        info = await source.describe()
        seen.retention_hours[arn] = info.retention_hours
        clock = ServiceClock(info.now)
        rows = [row for row in found.shards[arn] if not row.ended]
        looks = await gather_or_cancel(at(asking, source, r, clock) for r in rows)
        seen.looks.update({r.key: one for r, one in zip(rows, looks, strict=True)})

    faults = await for_each_stream(clients, found.shards, of_stream, roles)
    seen.problems.update({arn: str(error) for arn, error in faults.items()})
    return seen


def _report(
    app: str, table: str, seen: LagObservation, before: dict[ShardKey, LagSample]
) -> dict[str, Any]:
    streams = [_stream(s.arn, seen, before) for s in seen.found.streams]
    return {
        "version": VERSION,
        "app": app,
        "table": table,
        "seconds": _between(before.values(), seen.looks.values()),
        "streams": streams,
        "problems": [
            *seen.found.corrupt,
            *(f"{s['stream_arn']}: {s['problem']}" for s in streams if s["problem"]),
        ],
    }


def _between(before: Iterable[LagSample], after: Iterable[LagSample]) -> float | None:
    """Return how far the two looks lie apart."""
    first = min((sample_lag.at for sample_lag in before), default=None)
    last = min((sample_lag.at for sample_lag in after), default=None)
    return None if first is None or last is None else round(last - first, 1)


def _stream(
    arn: str, seen: LagObservation, before: dict[ShardKey, LagSample]
) -> dict[str, Any]:
    rows = [row for row in seen.found.shards[arn] if row.key in seen.looks]
    looks = [seen.looks[row.key] for row in rows]
    counts = [sample_lag.records for sample_lag in looks]
    unknown = arn in seen.problems or None in counts
    slowest = _slowest(looks)
    going = _course(slowest, [(seen.looks[r.key], before.get(r.key)) for r in rows])
    return {
        "stream_arn": arn,
        "problem": seen.problems.get(arn),
        "retention_hours": seen.retention_hours.get(arn),
        "millis_behind_latest": slowest.millis if slowest else None,
        "records_behind": None if unknown else sum(c or 0 for c in counts),
        "records_exact": not unknown and all(sample_lag.exact for sample_lag in looks),
        **_going(going),
        "shards": [
            {
                "shard_id": row.key.shard_id,
                "state": state(row, seen.found),
                "paused": seen.found.pause(row) is not None,
                "owner": row.owner_id or None,
                **_shard(seen.looks[row.key], before.get(row.key)),
            }
            for row in rows
        ],
    }


def _course(
    slowest: LagSample | None, shards: Sequence[tuple[LagSample, LagSample | None]]
) -> Trend:
    """Return where the lag of a stream's slowest shard is going: not always the same.

    If it stands still, that is said though another one was the slowest before.
    """
    if slowest is None:
        return Trend(UNKNOWN)
    its_own = next(
        (before for sample_lag, before in shards if sample_lag is slowest), None
    )
    if its_own is not None and its_own.after == slowest.after:
        return find_trend(its_own, slowest)
    return find_trend(_slowest(before for _, before in shards if before), slowest)


def _slowest(looks: Iterable[LagSample]) -> LagSample | None:
    known = [sample_lag for sample_lag in looks if sample_lag.millis is not None]
    return max(known, key=lambda sample_lag: sample_lag.millis or 0, default=None)


def _shard(sample_lag: LagSample, before: LagSample | None) -> dict[str, Any]:
    return {
        "problem": sample_lag.problem or None,
        "millis_behind_latest": sample_lag.millis,
        "records_behind": sample_lag.records,
        "records_exact": sample_lag.exact,
        **_going(find_trend(before, sample_lag)),
    }


def _going(going: Trend) -> dict[str, Any]:
    speed, left = going.millis_per_second, going.seconds_to_catch_up
    return {
        "trend": going.trend,
        "millis_per_second": None if speed is None else round(speed, 1),
        "seconds_to_catch_up": None if left is None else round(left, 1),
    }
