"""Summarize every app that has rows in a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from kinesumer.aws.dynamodb import DynamoStateStore
from kinesumer.model.rows import Row
from kinesumer.model.streams import stream_name
from kinesumer.ops.group.client_reports import LIVE_SECONDS, failures_of_group
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.ops.group.status import report as report_group
from kinesumer.wire import rows
from kinesumer.wire.rows import timestamp_seconds

MEMBERS, GROUPS, SHARDS = "member", "group", "shard"  # kinds of partitions


class AppSummary(NamedTuple):
    """An app at a glance."""

    app: str
    clients: int  # that have written to their rows in the last minutes
    streams: list[str]  # the streams' ARNs
    shards: int  # that are to be read now
    unread: int  # shards of these that no client reads and that are not paused
    paused: bool  # whether a stream or the whole app is paused
    failures: str  # what user code could not handle in the last minute, in words
    last_seen: str  # when a client wrote to its row last; empty if no row says so

    @property
    def names(self) -> list[str]:
        """The names of the streams."""
        return [stream_name(arn) for arn in self.streams]


async def read_apps(store: DynamoStateStore, now: float) -> list[AppSummary]:
    """Return a summary of each app, by name. ``now`` is in seconds since 1970.

    This reads the whole table once. It leaves corrupt rows out, which ``status`` shows.
    """
    found: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in await store.scan(*(f"{kind}#" for kind in (MEMBERS, GROUPS, SHARDS))):
        kind, app = str(row["pk"]).split("#", 2)[:2]
        found[app][kind].append(row)
    return [_summary(app, found[app], now) for app in sorted(found)]


def apps_report(table: str, apps: Iterable[AppSummary]) -> dict[str, Any]:
    """Return the summaries as JSON."""
    listed = [app._asdict() for app in apps]
    return {"table": table, "apps": listed}


def _summary(app: str, parts: dict[str, list[Row]], now: float) -> AppSummary:
    members = rows.parse_rows(rows.read_member, parts[MEMBERS])[0]
    # If an app's last client was killed, no other client marks its row as dead.
    live = [
        m for m in members if now - timestamp_seconds(m.last_update) <= LIVE_SECONDS
    ]
    named = [row for row in parts[GROUPS] if row["sk"] != rows.GROUP_SK]
    groups = [row for row in parts[GROUPS] if row["sk"] == rows.GROUP_SK]
    streams = rows.parse_rows(rows.read_stream, named)[0]
    shards = rows.parse_rows(rows.read_shard, parts[SHARDS])[0]
    group = next(iter(rows.parse_rows(rows.read_group, groups)[0]), None)
    by_stream = {
        stream.arn: [row for row in shards if row.key.stream_arn == stream.arn]
        for stream in streams
    }
    snapshot = Snapshot(live, None, streams, by_stream, group=group)
    found = report_group(app, "", FleetView(snapshot))
    open_shards = [
        shard
        for stream in found.streams
        for shard in stream.shards
        if shard.state not in ("ended", "waiting")
    ]
    failures = failures_of_group(snapshot.alive)
    return AppSummary(
        app,
        len(found.members),
        sorted(by_stream),
        len(open_shards),
        sum(shard.is_unconsumed for shard in open_shards),
        found.paused or any(stream.paused for stream in found.streams),
        "" if failures is None else failures.text,
        max(
            (member.last_update for member in members),
            key=timestamp_seconds,
            default="",
        ),
    )
