"""What a look at an app shows, as samples of metrics: pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kinesumer.admin.snapshot import state
from kinesumer.exporter.names import COUNTERS, GAUGES, PREFIX
from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

    from kinesumer.admin.lag import Lags
    from kinesumer.admin.observation import Observation
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.rows import MemberRow, StreamRow
    from kinesumer.model.streams import ShardKey

MEMBER_STATES = ("silent", "degraded", "leaving", "drained", "joining", "up")
SHARD_STATES = ("owned", "moving", "unowned", "orphaned", "waiting", "ended")
NEGLECTED = ("unowned", "orphaned")


class AppReading(NamedTuple):
    """What one reading of an app found."""

    sighting: Observation
    lags: Lags | None
    """None: nobody asked for them."""
    neglected: Mapping[ShardKey, float]
    """Since when, on the sighting's clock, shards that nobody consumes were seen so."""
    at: float
    """Seconds since 1970."""
    seconds: float
    """How long the reading took."""


class AppMetrics(NamedTuple):
    """How the readings of one app went, and what the last one found, if it did."""

    app: str
    reads: int
    errors: int
    look: AppReading | None


class MetricSet:
    """Collects samples, each under the name that names.py knows."""

    def __init__(self) -> None:
        self._gauges = {
            name: GaugeMetricFamily(PREFIX + name, help_, labels=labels)
            for name, (labels, help_) in GAUGES.items()
        }
        self._counters = {
            name: CounterMetricFamily(PREFIX + name, help_, labels=labels)
            for name, (labels, help_) in COUNTERS.items()
        }

    def gauge(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a gauge."""
        self._gauges[name].add_metric(labels, value)

    def counter(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a counter."""
        self._counters[name].add_metric(labels, value)

    def families(self) -> list[Metric]:
        """Return all metrics, those without samples too."""
        return [*self._counters.values(), *self._gauges.values()]


def build_metrics(accounts: Iterable[AppMetrics]) -> list[Metric]:
    """Return the metrics of some apps; an app that couldn't be read has but few."""
    sheet = MetricSet()
    for app, reads, errors, look in accounts:
        sheet.counter("reads", reads, app)
        sheet.counter("read_errors", errors, app)
        if reads:
            sheet.gauge("up", look is not None, app)
        if look is not None:
            _app(sheet, app, look)
    return sheet.families()


def _app(sheet: MetricSet, app: str, look: AppReading) -> None:
    found = look.sighting.found
    sheet.gauge("read_duration_seconds", look.seconds, app)
    sheet.gauge("read_timestamp_seconds", look.at, app)
    sheet.gauge("unreadable_rows", len(found.corrupt), app)
    if all(member.kind == CLIENT for member in found.alive):
        sheet.gauge("leader_present", found.leader_id is not None, app)
    states = Counter(_member_state(member, look.sighting) for member in found.alive)
    for name in MEMBER_STATES:
        sheet.gauge("members", states[name], app, name)
    for member in found.alive:
        age = look.sighting.age(member.session)
        sheet.gauge("heartbeat_age_seconds", age, app, member.client_id)
        owned = found.owned[member.session]
        sheet.gauge("member_shards", owned, app, member.client_id)
    for stream in found.streams:
        _stream(sheet, app, stream, look)


def _member_state(member: MemberRow, sighting: Observation) -> str:
    if member.session in sighting.silent:
        return "silent"
    if member.state != "up":
        return member.state if member.state in MEMBER_STATES else "degraded"
    if member.drained:
        return "drained"
    return "joining" if member.range is None and member.kind == CLIENT else "up"


def _stream(sheet: MetricSet, app: str, stream: StreamRow, look: AppReading) -> None:
    found = look.sighting.found
    rows = found.shards[stream.arn]
    # Its name was read from a row: it may be no ARN.
    region, account = [*stream.arn.split(":")[3:5], "", ""][:2]
    labels = app, stream_name(stream.arn), region, account
    states = Counter(state(row, found) for row in rows)
    for name in SHARD_STATES:
        sheet.gauge("shards", states[name], *labels, name)
    paused = sum(not row.ended and found.pause(row) is not None for row in rows)
    sheet.gauge("paused_shards", paused, *labels)
    since = [look.neglected[row.key] for row in rows if row.key in look.neglected]
    sheet.gauge("unowned_shards", len(since), *labels)
    oldest = min(since, default=look.sighting.at)
    sheet.gauge("unowned_seconds", look.sighting.at - oldest, *labels)
    if look.lags is not None:
        stuck = sum(row.key in look.sighting.stuck for row in rows)
        sheet.gauge("stuck_shards", stuck, *labels)
        _lag(sheet, stream.arn, look.lags, labels)


def _lag(sheet: MetricSet, arn: str, lags: Lags, labels: tuple[str, ...]) -> None:
    sheet.gauge("lag_known", arn not in lags.problems, *labels)
    shards = {key: millis for key, millis in lags.millis.items() if key[0] == arn}
    for key, millis in shards.items():
        sheet.gauge("shard_lag_seconds", millis / 1000, *labels, key.shard_id)
    if arn not in lags.problems:
        # No shard to be behind with: all have ended, or have no records any more.
        lag = max(shards.values(), default=0) / 1000
        sheet.gauge("lag_seconds", lag, *labels)
    if arn in lags.retention_hours and arn not in lags.problems:
        kept = lags.retention_hours[arn] * 3600
        sheet.gauge("retention_seconds", kept, *labels)
        sheet.gauge("retention_left_seconds", kept - lag, *labels)


def unconsumed_shards(found: Snapshot) -> list[ShardKey]:
    """Return the shards that nobody consumes though somebody should."""
    return [
        row.key
        for page in found.shards.values()
        for row in page
        if state(row, found) in NEGLECTED and found.pause(row) is None
    ]
