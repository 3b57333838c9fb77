"""Define every metric of ``kinesumer metrics``, and build its samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kinesumer.model.incidents import IncidentKind
from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import ShardKey, stream_name
from kinesumer.ops.group.client_reports import Failures
from kinesumer.ops.group.status import GroupReport, StreamReport

PREFIX = "kinesumer_group_"
MEMBER_STATES = ("silent", "degraded", "leaving", "drained", "joining", "up")
LOAD, CATCH_UP = GOALS = ("load", "catch_up")
SHARD_STATES = (
    "owned",
    "foreign",
    "moving",
    "unowned",
    "orphaned",
    "waiting",
    "ended",
)

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
        shards="Shards by state: owned, foreign (by a KCL worker), moving, unowned, "
        "orphaned, waiting or ended.",
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


class Scale(NamedTuple):
    """The number of clients that a group needs, and the group's busiest shards."""

    # By goal: ``load`` or ``catch_up``. Empty if no load is known.
    wanted: Mapping[str, int] = MappingProxyType({})
    busiest: tuple[ShardKey, ...] = ()
    slowest: tuple[ShardKey, ...] = ()


class AppReading(NamedTuple):
    """The result of reading an app once."""

    report: GroupReport
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


class MetricSet(dict[str, CounterMetricFamily | GaugeMetricFamily]):
    """The defined metrics by name, also those without samples."""

    def __init__(self) -> None:
        tables = (CounterMetricFamily, COUNTERS), (GaugeMetricFamily, GAUGES)
        for family, metrics in tables:
            for name, (labels, text) in metrics.items():
                self[name] = family(PREFIX + name, text, labels=labels)

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a metric."""
        self[name].add_metric(labels, value)


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
    return list(metrics.values())


def _add_app(metrics: MetricSet, app: str, reading: AppReading) -> None:
    report = reading.report
    metrics.add("read_duration_seconds", reading.seconds, app)
    metrics.add("read_timestamp_seconds", reading.at, app)
    metrics.add("unreadable_rows", len(report.unreadable_rows), app)
    if all(member.kind == CLIENT for member in report.members):
        metrics.add("leader_present", report.leader is not None, app)
    states: Counter[str] = Counter()
    # Kinds without incidents get samples of 0, so that alerts on them have data.
    incidents = Counter({(kind.value, ""): 0 for kind in IncidentKind})
    for member in report.members:
        # A newer version of the library may store states unknown to this one.
        state = member.states[0]
        states[state if state in MEMBER_STATES else "degraded"] += 1
        age = member.heartbeat_unchanged_seconds or 0.0
        metrics.add("heartbeat_age_seconds", age, app, member.client_id)
        metrics.add("member_shards", member.shards, app, member.client_id)
        incidents.update((it.kind, it.stream_arn or "") for it in member.incidents)
    for client_id, work in _work_by_client(report).items():
        metrics.add("member_work", work, app, client_id)
    for goal, clients in reading.scale.wanted.items():
        metrics.add("clients_wanted", clients, app, goal)
    # States without clients get samples of 0, so that alerts on them have data.
    for name in MEMBER_STATES:
        metrics.add("members", states[name], app, name)
    for (kind, arn), count in incidents.items():
        metrics.add("incidents", count, *_stream_labels(app, arn), kind)
    for stream in report.streams:
        _add_stream(metrics, app, stream, reading)


def _work_by_client(report: GroupReport) -> dict[str, float]:
    work: Counter[str] = Counter()
    for stream in report.streams:
        for shard in stream.shards:
            if shard.load is not None and shard.owner is not None:
                work[shard.owner] += shard.load.work
    return {client_id: total / 1e6 for client_id, total in work.items()}


def _stream_labels(app: str, arn: str) -> tuple[str, str, str, str]:
    # The ARN was read from a row, so it may be malformed.
    region, account = [*arn.split(":")[3:5], "", ""][:2]
    return app, stream_name(arn), region, account


def _add_stream(
    metrics: MetricSet, app: str, stream: StreamReport, reading: AppReading
) -> None:
    labels, shards = _stream_labels(app, stream.stream_arn), stream.shards
    for name in SHARD_STATES:
        metrics.add("shards", stream.states.get(name, 0), *labels, name)
    stopped = sum(shard.poison is not None for shard in shards)
    for name, value in {
        "paused_shards": sum(bool(s.paused) and s.state != "ended" for s in shards),
        "isolated_shards": sum(shard.isolated for shard in shards) - stopped,
        "stopped_shards": stopped,
        "unowned_shards": sum(shard.is_unconsumed for shard in shards),
        "unassignable_shards": stream.unassignable_shards,
        # Rows don't tell since when a shard has no owner, so a restarted exporter
        # begins again at 0.
        "unowned_seconds": max((s.unowned_seconds or 0.0 for s in shards), default=0.0),
        "hot_shards": sum(shard.hot for shard in shards),
    }.items():
        metrics.add(name, value, *labels)
    by_id = {shard.shard_id: shard for shard in shards}
    for key in reading.scale.busiest:
        load = by_id[key.shard_id].load if key.stream_arn == stream.stream_arn else None
        if load is not None:
            metrics.add("shard_work", load.work / 1e6, *labels, key.shard_id)
            for name, rate in msgspec.structs.asdict(load).items():
                metrics.add(f"shard_{name}", rate, *labels, key.shard_id)
    _add_failures(metrics, stream.failures, reading.at, labels)
    for use in stream.fan_out:
        metrics.add("fan_out_clients", len(use.clients), *labels, use.consumer)
        polling = len(use.polling)
        metrics.add("fan_out_polling_clients", polling, *labels, use.consumer)
    if reading.has_lags:
        _add_lags(metrics, stream, reading, labels)


def _add_failures(
    metrics: MetricSet, failures: Failures | None, now: float, labels: tuple[str, ...]
) -> None:
    names = ("calls", "failed_calls", "dead_letters", "skipped_records")
    for name in names:
        metric = "handler_calls" if name == "calls" else name
        metrics.add(metric, getattr(failures, name, 0), *labels)
    since = now if failures is None else failures.since
    metrics.add("failing_seconds", max(0.0, now - since), *labels)


def _add_lags(
    metrics: MetricSet,
    stream: StreamReport,
    reading: AppReading,
    labels: tuple[str, ...],
) -> None:
    stuck = sum(shard.stuck for shard in stream.shards)
    metrics.add("stuck_shards", stuck, *labels)
    by_id = {shard.shard_id: shard for shard in stream.shards}
    for arn, shard_id in reading.scale.slowest:
        if arn == stream.stream_arn:
            seconds = (by_id[shard_id].millis_behind_latest or 0) / 1000
            metrics.add("shard_lag_seconds", seconds, *labels, shard_id)
    metrics.add("lag_known", stream.lag_problem is None, *labels)
    if stream.lag_problem is not None:
        return
    if stream.caught_up is not None:
        metrics.add("caught_up", stream.caught_up, *labels)
    # The lag is unknown, and counts as 0, if all shards have ended, or if their records
    # are older than the retention.
    lag = (stream.millis_behind_latest or 0) / 1000
    metrics.add("lag_seconds", lag, *labels)
    if stream.retention_hours is not None:
        retention = stream.retention_hours * 3600
        metrics.add("retention_seconds", retention, *labels)
        metrics.add("retention_left_seconds", retention - lag, *labels)
