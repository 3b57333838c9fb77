"""Every metric of ``kinesumer metrics``: name, labels and meaning."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "kinesumer_group_"

APP = ("app",)
CLIENT = ("app", "client")
STREAM = ("app", "stream", "region", "account")
SHARD = (*STREAM, "shard")


class MetricInfo(NamedTuple):
    """A metric's labels and meaning; its name is the key."""

    labels: tuple[str, ...]
    help: str


COUNTERS: dict[str, MetricInfo] = {
    "reads": MetricInfo(APP, "Times that the app's rows were to be read."),
    "read_errors": MetricInfo(APP, "Times that the app's rows couldn't be read."),
}

GAUGES: dict[str, MetricInfo] = {
    "up": MetricInfo(
        APP, "Whether the app's rows could be read; if not, the rest is gone."
    ),
    "read_duration_seconds": MetricInfo(APP, "How long the last reading took."),
    "read_timestamp_seconds": MetricInfo(
        APP, "When the rows were last read, since 1970."
    ),
    "leader_present": MetricInfo(
        APP, "Whether a client leads; missing for a Spark query, which needs no leader."
    ),
    "members": MetricInfo(
        (*APP, "state"),
        "Live clients by the worst thing to say of each: silent, degraded, leaving, "
        "drained, joining or up.",
    ),
    "heartbeat_age_seconds": MetricInfo(
        CLIENT, "For how long this exporter has seen a client's heartbeat unchanged."
    ),
    "member_shards": MetricInfo(CLIENT, "Shards that a client owns."),
    "unreadable_rows": MetricInfo(
        APP, "Rows that can't be read: what they are about stands still."
    ),
    "shards": MetricInfo(
        (*STREAM, "state"),
        "Shards by state: owned, moving, unowned, orphaned, waiting or ended.",
    ),
    "paused_shards": MetricInfo(STREAM, "Shards that an operator has paused."),
    "stuck_shards": MetricInfo(
        STREAM, "Owned shards that are behind and whose position stands for a minute."
    ),
    "unowned_shards": MetricInfo(
        STREAM, "Shards that nobody consumes though somebody should: no pause, no wait."
    ),
    "unowned_seconds": MetricInfo(
        STREAM, "For how long this exporter has seen the oldest of them so; 0 if none."
    ),
    "lag_known": MetricInfo(
        STREAM, "Whether Kinesis could be asked for the lag; missing if not asked."
    ),
    "lag_seconds": MetricInfo(STREAM, "Lag of the shard that is furthest behind."),
    "shard_lag_seconds": MetricInfo(
        SHARD, "How far a shard's stored position is behind."
    ),
    "retention_seconds": MetricInfo(STREAM, "How long the stream keeps records."),
    "retention_left_seconds": MetricInfo(
        STREAM, "Time until the shard furthest behind loses records: retention - lag."
    ),
}
