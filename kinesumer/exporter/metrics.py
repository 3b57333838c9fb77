"""Define every metric of ``kinesumer metrics``, and build its samples."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

    from kinesumer.admin.lag import Lags
    from kinesumer.admin.observation import Observation
    from kinesumer.model.rows import StreamRow
    from kinesumer.model.streams import ShardKey

PREFIX = "kinesumer_group_"
MEMBER_STATES = ("silent", "degraded", "leaving", "drained", "joining", "up")
SHARD_STATES = ("owned", "moving", "unowned", "orphaned", "waiting", "ended")

APP_LABELS = ("app",)
CLIENT_LABELS = ("app", "client")
STREAM_LABELS = ("app", "stream", "region", "account")
SHARD_LABELS = (*STREAM_LABELS, "shard")


class MetricInfo(NamedTuple):
    """The labels and help text of a metric."""

    labels: tuple[str, ...]
    help: str


COUNTERS: dict[str, MetricInfo] = {
    "reads": MetricInfo(APP_LABELS, "Attempts to read the app's rows."),
    "read_errors": MetricInfo(APP_LABELS, "Failed attempts to read the app's rows."),
}

GAUGES: dict[str, MetricInfo] = {
    "up": MetricInfo(
        APP_LABELS,
        "Whether the app's rows could be read; otherwise its other gauges are missing.",
    ),
    "read_duration_seconds": MetricInfo(APP_LABELS, "Duration of the last read."),
    "read_timestamp_seconds": MetricInfo(
        APP_LABELS, "Time of the last read, in seconds since 1970."
    ),
    "leader_present": MetricInfo(
        APP_LABELS,
        "Whether a client leads; missing for a Spark query, which needs no leader.",
    ),
    "members": MetricInfo(
        (*APP_LABELS, "state"),
        "Live clients by their worst state: silent, degraded, leaving, drained, "
        "joining or up.",
    ),
    "heartbeat_age_seconds": MetricInfo(
        CLIENT_LABELS,
        "Time for which this exporter has seen a client's heartbeat unchanged.",
    ),
    "member_shards": MetricInfo(CLIENT_LABELS, "Shards that a client owns."),
    "unreadable_rows": MetricInfo(
        APP_LABELS, "Rows that can't be parsed; their clients or shards are stopped."
    ),
    "shards": MetricInfo(
        (*STREAM_LABELS, "state"),
        "Shards by state: owned, moving, unowned, orphaned, waiting or ended.",
    ),
    "paused_shards": MetricInfo(STREAM_LABELS, "Shards that an operator has paused."),
    "stuck_shards": MetricInfo(
        STREAM_LABELS,
        "Owned shards that lag and whose position hasn't moved for a minute.",
    ),
    "unowned_shards": MetricInfo(
        STREAM_LABELS,
        "Shards without a living owner that are neither paused nor waiting.",
    ),
    "unowned_seconds": MetricInfo(
        STREAM_LABELS,
        "Time for which this exporter has seen the oldest of them so; 0 if none.",
    ),
    "lag_known": MetricInfo(
        STREAM_LABELS, "Whether the lag could be read; missing if it isn't read."
    ),
    "lag_seconds": MetricInfo(
        STREAM_LABELS, "Lag of the shard that is furthest behind."
    ),
    "shard_lag_seconds": MetricInfo(
        SHARD_LABELS, "Time by which a shard's stored position is behind."
    ),
    "retention_seconds": MetricInfo(
        STREAM_LABELS, "Time for which the stream keeps records."
    ),
    "retention_left_seconds": MetricInfo(
        STREAM_LABELS,
        "Time until the shard furthest behind loses records: retention - lag.",
    ),
}


class AppReading(NamedTuple):
    """The result of reading an app once."""

    observation: Observation
    lags: Lags | None
    """None if lags aren't read."""
    unconsumed_since: Mapping[ShardKey, float]
    """When each unconsumed shard was first seen so, on the observation's clock."""
    at: float
    """Seconds since 1970."""
    seconds: float
    """The duration of the read."""


class AppMetrics(NamedTuple):
    """The number of reads of an app, and the last reading if it succeeded."""

    app: str
    reads: int
    errors: int
    reading: AppReading | None


class MetricSet:
    """Collects samples of the defined metrics."""

    def __init__(self) -> None:
        self._gauges = {
            name: GaugeMetricFamily(PREFIX + name, info.help, labels=info.labels)
            for name, info in GAUGES.items()
        }
        self._counters = {
            name: CounterMetricFamily(PREFIX + name, info.help, labels=info.labels)
            for name, info in COUNTERS.items()
        }

    def gauge(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a gauge."""
        self._gauges[name].add_metric(labels, value)

    def counter(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a counter."""
        self._counters[name].add_metric(labels, value)

    def families(self) -> list[Metric]:
        """Return all metrics, including those without samples."""
        return [*self._counters.values(), *self._gauges.values()]


def build_metrics(apps: Iterable[AppMetrics]) -> list[Metric]:
    """Return the metrics of apps; an app that couldn't be read has only a few."""
    metrics = MetricSet()
    for app, reads, errors, reading in apps:
        metrics.counter("reads", reads, app)
        metrics.counter("read_errors", errors, app)
        if reads:
            metrics.gauge("up", reading is not None, app)
        if reading is not None:
            _add_app(metrics, app, reading)
    return metrics.families()


def _add_app(metrics: MetricSet, app: str, reading: AppReading) -> None:
    observed = reading.observation
    snapshot = observed.snapshot
    metrics.gauge("read_duration_seconds", reading.seconds, app)
    metrics.gauge("read_timestamp_seconds", reading.at, app)
    metrics.gauge("unreadable_rows", len(snapshot.corrupt), app)
    if all(member.kind == CLIENT for member in snapshot.alive):
        metrics.gauge("leader_present", snapshot.leader_id is not None, app)
    states: Counter[str] = Counter()
    for member in snapshot.alive:
        state = observed.states(member)[0]
        # A newer version of the library may store states unknown to this one.
        states[state if state in MEMBER_STATES else "degraded"] += 1
        age = observed.age(member.session)
        metrics.gauge("heartbeat_age_seconds", age, app, member.client_id)
        owned = snapshot.owned[member.session]
        metrics.gauge("member_shards", owned, app, member.client_id)
    for name in MEMBER_STATES:
        metrics.gauge("members", states[name], app, name)
    for stream in snapshot.streams:
        _add_stream(metrics, app, stream, reading)


def _add_stream(
    metrics: MetricSet, app: str, stream: StreamRow, reading: AppReading
) -> None:
    observed = reading.observation
    snapshot = observed.snapshot
    rows = snapshot.shards[stream.arn]
    # The ARN was read from a row, so it may be malformed.
    region, account = [*stream.arn.split(":")[3:5], "", ""][:2]
    labels = app, stream_name(stream.arn), region, account
    states = Counter(snapshot.state(row) for row in rows)
    for name in SHARD_STATES:
        metrics.gauge("shards", states[name], *labels, name)
    paused = sum(not row.ended and snapshot.pause(row) is not None for row in rows)
    metrics.gauge("paused_shards", paused, *labels)
    unconsumed = reading.unconsumed_since
    since = [unconsumed[row.key] for row in rows if row.key in unconsumed]
    metrics.gauge("unowned_shards", len(since), *labels)
    oldest = min(since, default=observed.at)
    metrics.gauge("unowned_seconds", observed.at - oldest, *labels)
    if reading.lags is not None:
        stuck = sum(row.key in observed.stuck for row in rows)
        metrics.gauge("stuck_shards", stuck, *labels)
        _add_lag(metrics, stream.arn, reading.lags, labels)


def _add_lag(metrics: MetricSet, arn: str, lags: Lags, labels: tuple[str, ...]) -> None:
    metrics.gauge("lag_known", arn not in lags.problems, *labels)
    shards = {
        key: millis for key, millis in lags.millis.items() if key.stream_arn == arn
    }
    for key, millis in shards.items():
        metrics.gauge("shard_lag_seconds", millis / 1000, *labels, key.shard_id)
    if arn in lags.problems:
        return
    # 0 if all shards have ended, or their records are older than the retention.
    lag = max(shards.values(), default=0) / 1000
    metrics.gauge("lag_seconds", lag, *labels)
    if arn in lags.retention_hours:
        retention = lags.retention_hours[arn] * 3600
        metrics.gauge("retention_seconds", retention, *labels)
        metrics.gauge("retention_left_seconds", retention - lag, *labels)
