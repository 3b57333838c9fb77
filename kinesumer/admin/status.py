"""Build the report of ``kinesumer status``: members, streams, shards and lags."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag import Lags, read_lags
from kinesumer.admin.observation import HeartbeatObserver, stall_limit_seconds
from kinesumer.admin.snapshot import read_known_snapshot
from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import HASH_KEYS, stream_name
from kinesumer.wire import rows as wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.rows import GroupRow, MemberRow, ShardRow, StreamRow
    from kinesumer.model.streams import Range
    from kinesumer.ports import StateStore

VERSION = 1
RESETTING = (
    "a reset of the app isn't complete, and clients can't start: if no other operator "
    "runs it now, run kinesumer reset again"
)


class StatusQuery:
    """A status query that remembers the heartbeats between its reads."""

    def __init__(
        self, app: str, table: str, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self.app, self.table = app, table
        self._roles = roles
        self._lag = lag
        self._heartbeats = HeartbeatObserver(app)

    async def read(self, clients: ClientFactory, store: StateStore) -> dict[str, Any]:
        """Read the rows, observe the heartbeats and read the lags; return the report.

        Raises KinesumerError.
        """
        snapshot = await read_known_snapshot(store, self.app, self.table)
        shards = snapshot.shards if self._lag else {}
        ages, lags = await asyncio.gather(
            self._heartbeats.watch(store, snapshot),
            read_lags(clients, shards, self._roles),
        )
        return report(self.app, self.table, snapshot, lags, ages)


def report(
    app: str,
    table: str,
    snapshot: Snapshot,
    lags: Lags,
    heartbeat_ages: Mapping[str, float],
) -> dict[str, Any]:
    """Return the report as JSON (docs/status-json.md).

    ``heartbeat_ages`` holds, by session, for how many seconds a heartbeat was seen
    unchanged.
    """
    streams = [_stream(stream, snapshot, lags) for stream in snapshot.streams]
    members = [_member(member, snapshot, heartbeat_ages) for member in snapshot.alive]
    return {
        "version": VERSION,
        "app": app,
        "table": table,
        "leader": snapshot.leader_id,
        **_pause(snapshot.group),
        "members": members,
        "streams": streams,
        "problems": [
            *snapshot.corrupt,
            *_group_problems(snapshot),
            *(
                f"{member['client_id']} looks stalled: its heartbeat is unchanged for "
                f"{member['heartbeat_unchanged_seconds']:.1f} s"
                for member in members
                if member["stalled"]
            ),
            *(
                f"{member['client_id']} is degraded: it can't reach Kinesis"
                for member in members
                if member["state"] == "degraded"
            ),
            *(problem for stream in streams for problem in _stream_problems(stream)),
        ],
    }


def _group_problems(snapshot: Snapshot) -> list[str]:
    # A Spark query has the group for itself and needs no leader.
    has_clients = any(member.kind == CLIENT for member in snapshot.alive)
    all_drained = bool(snapshot.alive) and all(
        member.drained for member in snapshot.alive
    )
    return [
        *([RESETTING] if snapshot.resetting else []),
        *(["no client leads"] if has_clients and not snapshot.leader_id else []),
        *(["all clients are drained: no client may consume"] if all_drained else []),
    ]


def _pause(row: GroupRow | StreamRow | None) -> dict[str, Any]:
    is_paused = row is not None and row.paused
    reason = row.pause_reason if row is not None and is_paused else None
    return {"paused": is_paused, "pause_reason": reason}


def _member(
    member: MemberRow, snapshot: Snapshot, heartbeat_ages: Mapping[str, float]
) -> dict[str, Any]:
    age = heartbeat_ages.get(member.session)
    return {
        "client_id": member.client_id,
        "kind": member.kind,
        "session": member.session,
        "index": member.index,
        "leader": member.client_id == snapshot.leader_id,
        "state": member.state,
        "drained": member.drained,
        "heartbeat": member.beat,
        "heartbeat_unchanged_seconds": None if age is None else round(age, 1),
        "stalled": age is not None and age > stall_limit_seconds(member),
        "last_update": member.last_update,
        "weight": member.weight,
        "label": member.label,
        "streams": sorted(member.streams),
        "range": _range(member.range),
        "shards": snapshot.owned[member.session],
    }


def _range(range_: Range | None) -> list[dict[str, str]] | None:
    if range_ is None:
        return None
    return [
        {
            "stream_arn": arn,
            "first_hash": wire.hash_text(first),
            "last_hash": wire.hash_text(last),
        }
        for arn, first, last in range_
    ]


def _stream(stream: StreamRow, snapshot: Snapshot, lags: Lags) -> dict[str, Any]:
    shards = [_shard(row, snapshot, lags) for row in snapshot.shards[stream.arn]]
    millis = [shard["millis_behind_latest"] for shard in shards]
    return {
        "stream_arn": stream.arn,
        "start": wire.start_text(stream.start),
        "baseline": stream.baseline,
        **_pause(stream),
        "retention_hours": lags.retention_hours.get(stream.arn),
        "lag_problem": lags.problems.get(stream.arn),
        "millis_behind_latest": max(
            (known for known in millis if known is not None), default=None
        ),
        "states": dict(sorted(Counter(s["state"] for s in shards).items())),
        "shards": shards,
    }


def _shard(row: ShardRow, snapshot: Snapshot, lags: Lags) -> dict[str, Any]:
    position, pause = row.position, snapshot.pause(row)
    return {
        "shard_id": row.key.shard_id,
        "first_hash": wire.hash_text(row.first_hash),
        "last_hash": wire.hash_text(row.last_hash),
        "share": round((row.last_hash - row.first_hash + 1) / HASH_KEYS, 6),
        "state": snapshot.state(row),
        "paused": pause.scope if pause else None,
        "pause_reason": pause.reason if pause else None,
        "owner": row.owner_id or None,
        "planned_owner": snapshot.planned.get(row.key),
        "epoch": row.epoch,
        "sequence_number": position.sequence_number if position else None,
        "sub_sequence_number": position.sub_sequence_number if position else None,
        "parents": sorted(row.parents),
        "millis_behind_latest": lags.millis.get(row.key),
    }


def _stream_problems(stream: dict[str, Any]) -> list[str]:
    name = stream_name(stream["stream_arn"])
    problems = []
    if stream["lag_problem"]:
        problems.append(f"stream {name}: lag unknown: {stream['lag_problem']}")
    if not stream["baseline"]:
        problems.append(f"stream {name}: its shards haven't been listed completely yet")
    # Shards with the same state and owners share one line.
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for shard in stream["shards"]:
        if shard["state"] in ("unowned", "orphaned") and not shard["paused"]:
            owner = f" (owner {shard['owner']} is dead)" if shard["owner"] else ""
            planned = shard["planned_owner"] or "no client"
            groups[shard["state"], owner, planned].append(shard["shard_id"])
    for (state, owner, planned), ids in groups.items():
        which = (
            f"{ids[0]} is" if len(ids) == 1 else f"{len(ids)} shards ({ids[0]}, …) are"
        )
        problems.append(f"stream {name}: {which} {state}{owner}; planned for {planned}")
    return problems
