"""Every metric of ``kinesumer metrics``: name, labels and meaning."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "kinesumer_group_"

APP = ("app",)
CLIENT = ("app", "client")
STREAM = ("app", "stream", "region", "account")
SHARD = (*STREAM, "shard")


class Named(NamedTuple):
    """A metric's labels and meaning; its name is the key."""

    labels: tuple[str, ...]
    help: str


COUNTERS: dict[str, Named] = {
    "reads": Named(APP, "Times that the app's rows were to be read."),
    "read_errors": Named(APP, "Times that the app's rows couldn't be read."),
}

GAUGES: dict[str, Named] = {
    "up": Named(APP, "Whether the app's rows could be read; if not, the rest is gone."),
    "read_duration_seconds": Named(APP, "How long the last reading took."),
    "read_timestamp_seconds": Named(APP, "When the rows were last read, since 1970."),
    "leader_present": Named(
        APP, "Whether a client leads; missing for a Spark query, which needs no leader."
    ),
    "members": Named(
        (*APP, "state"),
        "Live clients by the worst thing to say of each: silent, degraded, leaving, "
        "drained, joining or up.",
    ),
    "heartbeat_age_seconds": Named(
        CLIENT, "For how long this exporter has seen a client's heartbeat unchanged."
    ),
    "member_shards": Named(CLIENT, "Shards that a client owns."),
    "unreadable_rows": Named(
        APP, "Rows that can't be read: what they are about stands still."
    ),
    "shards": Named(
        (*STREAM, "state"),
        "Shards by state: owned, moving, unowned, orphaned, waiting or ended.",
    ),
    "paused_shards": Named(STREAM, "Shards that an operator has paused."),
    "stuck_shards": Named(
        STREAM, "Owned shards that are behind and whose position stands for a minute."
    ),
    "unowned_shards": Named(
        STREAM, "Shards that nobody consumes though somebody should: no pause, no wait."
    ),
    "unowned_seconds": Named(
        STREAM, "For how long this exporter has seen the oldest of them so; 0 if none."
    ),
    "lag_known": Named(
        STREAM, "Whether Kinesis could be asked for the lag; missing if not asked."
    ),
    "lag_seconds": Named(STREAM, "Lag of the shard that is furthest behind."),
    "shard_lag_seconds": Named(SHARD, "How far a shard's stored position is behind."),
    "retention_seconds": Named(STREAM, "How long the stream keeps records."),
    "retention_left_seconds": Named(
        STREAM, "Time until the shard furthest behind loses records: retention - lag."
    ),
}
