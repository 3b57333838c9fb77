"""Define every metric of ``kinesumer metrics``, and build its samples."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from kinesumer.core.load import work_of
from kinesumer.model.failures import Outcomes
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import stream_name
from kinesumer.ops.exporter.scale import CATCH_UP, LOAD, Scale
from kinesumer.ops.group.failures import failures_of_stream
from kinesumer.ops.group.fan_out import uses_of_stream
from kinesumer.ops.group.incidents import group_incidents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from kinesumer.model.loads import Load
    from kinesumer.ops.group.observation import FleetView, Observation

PREFIX = "kinesumer_group_"
MEMBER_STATES = ("silent", "degraded", "leaving", "drained", "joining", "up")
GOALS = (LOAD, CATCH_UP)
SHARD_STATES = ("owned", "moving", "unowned", "orphaned", "waiting", "ended")

STREAM_LABELS = ("app", "stream", "region", "account")


class MetricInfo(NamedTuple):
    """The labels and help text of a metric."""

    labels: tuple[str, ...]
    help: str


def _labelled(labels: tuple[str, ...], **helps: str) -> dict[str, MetricInfo]:
    return {name: MetricInfo(labels, text) for name, text in helps.items()}


COUNTERS = _labelled(
    ("app",),
    reads="Attempts to read the app's rows.",
    read_errors="Failed attempts to read the app's rows.",
)
GAUGES = {
    **_labelled(
        ("app",),
        up="Whether the app's rows could be read; otherwise its other gauges are "
        "missing.",
        read_duration_seconds="Duration of the last read.",
        read_timestamp_seconds="Time of the last read, in seconds since 1970.",
        leader_present="Whether a client leads; missing for a Spark query, which "
        "needs no leader.",
        unreadable_rows="Rows that can't be parsed; their clients or shards are "
        "stopped.",
    ),
    **_labelled(
        ("app", "state"),
        members="Live clients by their worst state: silent, degraded, leaving, "
        "drained, joining or up.",
    ),
    **_labelled(
        ("app", "client"),
        heartbeat_age_seconds="Time for which this exporter has seen a client's "
        "heartbeat unchanged.",
        member_shards="Shards that a client owns.",
        member_work="Seconds of work per second that a client's shards cause; missing "
        "until it has measured some.",
    ),
    **_labelled(
        ("app", "goal"),
        clients_wanted="Clients that the group needs for the target utilization (goal "
        "load), and to remove its backlog in time as well (goal catch_up); missing if "
        "no load is known.",
    ),
    **_labelled(
        (*STREAM_LABELS, "state"),
        shards="Shards by state: owned, moving, unowned, orphaned, waiting or ended.",
    ),
    **_labelled(
        STREAM_LABELS,
        paused_shards="Shards that an operator has paused.",
        isolated_shards="Shards read one record at a time, because their owners died "
        "repeatedly at one position.",
        stopped_shards="Shards that stop at a record that kills the processes that "
        "receive it, unless it becomes a dead letter.",
        hot_shards="Shards that alone have more work than a client's share.",
        stuck_shards="Owned shards that lag and whose position hasn't moved for a "
        "minute.",
        unowned_shards="Shards without a living owner that are neither paused nor "
        "waiting.",
        unowned_seconds="Longest time for which this exporter has seen such a shard; "
        "0 if none.",
        handler_calls="Calls of handlers in the last minute; 0 if none has failed.",
        failed_calls="Calls of handlers in the last minute that raised.",
        dead_letters="Records that became dead letters in the last minute.",
        skipped_records="Records that could not be decoded and were skipped in the "
        "last minute.",
        failing_seconds="Time since which no minute has passed without such a "
        "failure; 0 without one.",
        unassignable_shards="Unowned shards that no client may take: all own "
        "their max_shards.",
        lag_known="Whether the lag could be read; missing if it isn't read.",
        lag_seconds="Lag of the shard whose stored position is furthest behind.",
        caught_up="Whether all shards are read as records arrive, as far as commits "
        "show; missing if unknown.",
        retention_seconds="Time for which the stream keeps records.",
        retention_left_seconds="Time until the shard furthest behind loses records: "
        "retention - lag.",
    ),
    **_labelled(
        (*STREAM_LABELS, "kind"),
        incidents="Lasting failures that live clients report, by kind; without a "
        "stream if they concern the clients themselves.",
    ),
    **_labelled(
        (*STREAM_LABELS, "consumer"),
        fan_out_clients="Live clients that read the stream by fan-out; missing if no "
        "client requests it.",
        fan_out_polling_clients="Live clients that poll, because fan-out fails; "
        "missing if no client requests it.",
    ),
    **_labelled(
        (*STREAM_LABELS, "shard"),
        shard_lag_seconds="Time by which the stored position is behind, of the shards "
        "furthest behind.",
        shard_work="Seconds of work per second, of the busiest shards.",
        shard_bytes_per_second="Bytes of data per second, of the busiest shards.",
        shard_records_per_second="Records per second, of the busiest shards.",
        shard_handler_seconds_per_second="Seconds per second that user code takes, of "
        "the busiest shards.",
    ),
}


class AppReading(NamedTuple):
    """The result of reading an app once."""

    observation: Observation
    has_lags: bool
    at: float  # seconds since 1970
    seconds: float  # the duration of the read
    scale: Scale


class AppMetrics(NamedTuple):
    """Counts of an app's reads, and the last reading (None if the read failed)."""

    app: str
    reads: int
    errors: int
    reading: AppReading | None


class MetricSet:
    """Collects samples of the defined metrics."""

    def __init__(self) -> None:
        self._families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            name: family(PREFIX + name, info.help, labels=info.labels)
            for family, metrics in (
                (CounterMetricFamily, COUNTERS),
                (GaugeMetricFamily, GAUGES),
            )
            for name, info in metrics.items()
        }

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a metric."""
        self._families[name].add_metric(labels, value)

    def families(self) -> list[Metric]:
        """Return all metrics, including those without samples."""
        return list(self._families.values())


def build_metrics(apps: Iterable[AppMetrics]) -> list[Metric]:
    """Return the metrics of apps.

    An app that couldn't be read has only ``up`` and the counters of reads.
    """
    metrics = MetricSet()
    for app, reads, errors, reading in apps:
        metrics.add("reads", reads, app)
        metrics.add("read_errors", errors, app)
        if reads:
            metrics.add("up", reading is not None, app)
        if reading is not None:
            _add_app(metrics, app, reading)
    return metrics.families()


def _add_app(metrics: MetricSet, app: str, reading: AppReading) -> None:
    fleet, snapshot = reading.observation, reading.observation.snapshot
    metrics.add("read_duration_seconds", reading.seconds, app)
    metrics.add("read_timestamp_seconds", reading.at, app)
    metrics.add("unreadable_rows", len(snapshot.corrupt), app)
    if all(member.kind == CLIENT for member in snapshot.alive):
        metrics.add("leader_present", snapshot.leader_id is not None, app)
    states: Counter[str] = Counter()
    for member in snapshot.alive:
        state = fleet.states(member)[0]
        # A newer version of the library may store states unknown to this one.
        states[state if state in MEMBER_STATES else "degraded"] += 1
        age, owned = fleet.age(member), snapshot.owned[member.session]
        metrics.add("heartbeat_age_seconds", age, app, member.client_id)
        metrics.add("member_shards", owned, app, member.client_id)
    for client_id, work in _work_by_client(fleet).items():
        metrics.add("member_work", work, app, client_id)
    for goal, clients in reading.scale.wanted.items():
        metrics.add("clients_wanted", clients, app, goal)
    # States without clients get samples of 0, so that alerts on them have data.
    for name in MEMBER_STATES:
        metrics.add("members", states[name], app, name)
    # Kinds without incidents get samples of 0, so that alerts on them have data.
    incidents = {(kind, ""): 0 for kind in IncidentKind}
    for group in group_incidents(snapshot.alive):
        incidents[group.kind, group.stream_arn] = len(group.incidents)
    for (kind, arn), count in incidents.items():
        metrics.add("incidents", count, *_stream_labels(app, arn), kind.value)
    for stream in snapshot.streams:
        _add_stream(metrics, app, stream.arn, reading)


def _work_by_client(fleet: FleetView) -> dict[str, float]:
    loads, rows = fleet.loads.of_shards, fleet.snapshot.shards.values()
    work: Counter[str] = Counter()
    for row in chain.from_iterable(rows):
        if row.key in loads:
            work[row.owner_id] += work_of(loads[row.key])
    return {client_id: total / 1e6 for client_id, total in work.items()}


def _stream_labels(app: str, arn: str) -> tuple[str, str, str, str]:
    # The ARN was read from a row, so it may be malformed.
    region, account = [*arn.split(":")[3:5], "", ""][:2]
    return app, stream_name(arn), region, account


def _add_stream(metrics: MetricSet, app: str, arn: str, reading: AppReading) -> None:
    fleet, snapshot = reading.observation, reading.observation.snapshot
    rows = snapshot.shards[arn]
    labels = _stream_labels(app, arn)
    states = fleet.shard_states(arn)
    for name in SHARD_STATES:
        metrics.add("shards", states[name], *labels, name)
    paused = sum(not row.ended and snapshot.pause(row) is not None for row in rows)
    metrics.add("paused_shards", paused, *labels)
    stopped = sum(row.poison is not None for row in rows)
    isolated = sum(row.is_isolated for row in rows) - stopped
    metrics.add("isolated_shards", isolated, *labels)
    metrics.add("stopped_shards", stopped, *labels)
    # Rows don't tell since when a shard has no owner, so a restarted exporter begins
    # again at 0.
    unconsumed = fleet.unconsumed
    since = [unconsumed[row.key] for row in rows if row.key in unconsumed]
    metrics.add("unowned_shards", len(since), *labels)
    metrics.add("unassignable_shards", len(snapshot.unassignable(arn)), *labels)
    metrics.add("unowned_seconds", fleet.at - min(since, default=fleet.at), *labels)
    hot = sum(key.stream_arn == arn for key in fleet.loads.hot_shards)
    metrics.add("hot_shards", hot, *labels)
    for key in reading.scale.busiest:
        if key.stream_arn == arn:
            _add_load(metrics, fleet.loads.of_shards[key], *labels, key.shard_id)
    _add_failures(metrics, arn, reading, labels)
    for use in uses_of_stream(snapshot.alive, arn):
        metrics.add("fan_out_clients", len(use.clients), *labels, use.consumer)
        polling = len(use.polling)
        metrics.add("fan_out_polling_clients", polling, *labels, use.consumer)
    if reading.has_lags:
        stuck = sum(row.key in fleet.stuck for row in rows)
        metrics.add("stuck_shards", stuck, *labels)
        for key in reading.scale.slowest:
            if key.stream_arn == arn:
                seconds = fleet.lags.millis[key] / 1000
                metrics.add("shard_lag_seconds", seconds, *labels, key.shard_id)
        _add_lag(metrics, arn, fleet, labels)


def _add_failures(
    metrics: MetricSet, arn: str, reading: AppReading, labels: tuple[str, ...]
) -> None:
    failures = failures_of_stream(reading.observation.snapshot.alive, arn)
    since, outcomes = reading.at, Outcomes()
    if failures is not None:
        since, outcomes = failures.since, failures.outcomes
    metrics.add("handler_calls", outcomes.calls, *labels)
    metrics.add("failed_calls", outcomes.failed, *labels)
    metrics.add("dead_letters", outcomes.letters, *labels)
    metrics.add("skipped_records", outcomes.skipped, *labels)
    metrics.add("failing_seconds", max(0.0, reading.at - since), *labels)


def _add_load(metrics: MetricSet, load: Load, *labels: str) -> None:
    metrics.add("shard_work", work_of(load) / 1e6, *labels)
    for name, rate in load._asdict().items():
        metrics.add(f"shard_{name}", rate, *labels)


def _add_lag(
    metrics: MetricSet, arn: str, fleet: FleetView, labels: tuple[str, ...]
) -> None:
    lags = fleet.lags
    metrics.add("lag_known", arn not in lags.problems, *labels)
    if arn in lags.problems:
        return
    caught_up = fleet.caught_up(fleet.snapshot.shards[arn])
    if caught_up is not None:
        metrics.add("caught_up", caught_up, *labels)
    # The lag is unknown, and counts as 0, if all shards have ended, or if their records
    # are older than the retention.
    lag = (fleet.millis_behind(arn) or 0) / 1000
    metrics.add("lag_seconds", lag, *labels)
    if arn in lags.retention_hours:
        retention = lags.retention_hours[arn] * 3600
        metrics.add("retention_seconds", retention, *labels)
        metrics.add("retention_left_seconds", retention - lag, *labels)
