"""What ``kinesumer status`` knows, as the JSON that docs/status-json.md describes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kinesumer.model import HASH_KEYS, stream_name
from kinesumer.wire import rows as wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model import Range
    from kinesumer.operations.lag import Lags
    from kinesumer.operations.snapshot import Snapshot
    from kinesumer.wire.rows import GroupRow, MemberRow, ShardRow, StreamRow

VERSION = 1


def report(
    app: str,
    table: str,
    found: Snapshot,
    lags: Lags,
    silent_seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Return everything; ``silent_seconds`` tells, by session, how long a heartbeat
    was seen unchanged."""
    streams = [_stream(stream, found, lags) for stream in found.streams]
    members = [_member(member, found, silent_seconds) for member in found.alive]
    return {
        "version": VERSION,
        "app": app,
        "table": table,
        "leader": found.leader_id,
        **_paused(found.group),
        "members": members,
        "streams": streams,
        "problems": [
            *found.corrupt,
            *([RESETTING] if found.resetting else []),
            *(["nobody leads"] if _lacks_leader(found) else []),
            *(["all clients are drained: nobody may consume"] if _idle(found) else []),
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
            *(problem for stream in streams for problem in _problems(stream)),
        ],
    }


def _lacks_leader(found: Snapshot) -> bool:
    """A query needs none: it has the group for itself."""
    clients = [member for member in found.alive if member.kind == wire.CLIENT]
    return bool(clients) and not found.leader_id


def _idle(found: Snapshot) -> bool:
    return bool(found.alive) and all(member.drained for member in found.alive)


def _paused(row: GroupRow | StreamRow | None) -> dict[str, Any]:
    """Return what an operator asked for of the whole app, or of a stream."""
    is_paused = row is not None and row.paused
    reason = row.pause_reason if row is not None and is_paused else None
    return {"paused": is_paused, "pause_reason": reason}


RESETTING = (
    "the app is being reset, and clients that start are refused: if nobody is at it, "
    "run kinesumer reset again"
)


def stalled_after(member: MemberRow) -> float:
    """Return for how long a heartbeat may be unchanged: one and a half intervals."""
    return 1.5 * member.lease_ms / 4000


def _member(
    member: MemberRow, found: Snapshot, silent_seconds: Mapping[str, float]
) -> dict[str, Any]:
    silent = silent_seconds.get(member.session)
    return {
        "client_id": member.client_id,
        "kind": member.kind,
        "session": member.session,
        "index": member.index,
        "leader": member.client_id == found.leader_id,
        "state": member.state,
        "drained": member.drained,
        "heartbeat": member.beat,
        "heartbeat_unchanged_seconds": None if silent is None else round(silent, 1),
        "stalled": silent is not None and silent > stalled_after(member),
        "last_update": member.last_update,
        "weight": member.weight,
        "label": member.label,
        "streams": sorted(member.streams),
        "range": _range(member.range),
        "shards": found.owned[member.session],
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


def _stream(stream: StreamRow, found: Snapshot, lags: Lags) -> dict[str, Any]:
    rows = found.shards[stream.arn]
    shards = [_shard(row, found, lags) for row in rows]
    return {
        "stream_arn": stream.arn,
        "start": wire.start_text(stream.start),
        "baseline": stream.baseline,
        **_paused(stream),
        "retention_hours": lags.retention_hours.get(stream.arn),
        "lag_problem": lags.problems.get(stream.arn),
        "millis_behind_latest": max(
            (s["millis_behind_latest"] or 0 for s in shards), default=0
        )
        if any(s["millis_behind_latest"] is not None for s in shards)
        else None,
        "states": dict(sorted(Counter(s["state"] for s in shards).items())),
        "shards": shards,
    }


def _shard(row: ShardRow, found: Snapshot, lags: Lags) -> dict[str, Any]:
    position, pause = row.position, found.pause(row)
    return {
        "shard_id": row.key.shard_id,
        "first_hash": wire.hash_text(row.first_hash),
        "last_hash": wire.hash_text(row.last_hash),
        "share": round((row.last_hash - row.first_hash + 1) / HASH_KEYS, 6),
        "state": state(row, found),
        "paused": pause.of if pause else None,
        "pause_reason": pause.reason if pause else None,
        "owner": row.owner_id or None,
        "planned_owner": found.planned.get(row.key),
        "epoch": row.epoch,
        "sequence_number": position.sequence_number if position else None,
        "sub_sequence_number": position.sub_sequence_number if position else None,
        "parents": sorted(row.parents),
        "millis_behind_latest": lags.millis.get(row.key),
    }


def state(row: ShardRow, found: Snapshot) -> str:
    """Return owned, moving, orphaned, unowned, waiting or ended."""
    if row.ended:
        return "ended"
    if not row.ready:
        return "waiting"
    if not row.owner:
        return "unowned"
    if row.owner not in found.sessions:
        return "orphaned"
    planned = found.planned.get(row.key, row.owner_id)
    return "owned" if planned == row.owner_id else "moving"


def _problems(stream: dict[str, Any]) -> list[str]:
    name = stream_name(stream["stream_arn"])
    found = []
    if stream["lag_problem"]:
        found.append(f"stream {name}: lag unknown: {stream['lag_problem']}")
    if not stream["baseline"]:
        found.append(f"stream {name}: its shards haven't been listed completely yet")
    found += [
        f"stream {name}: {_named(shards)} {state}{owner}; planned for {planned}"
        for (state, owner, planned), shards in _neglected(stream).items()
    ]
    return found


def _neglected(stream: dict[str, Any]) -> dict[tuple[str, str, str], list[str]]:
    """Return the shards that nobody consumes, by what is to be said of them."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for shard in stream["shards"]:
        if shard["state"] in ("unowned", "orphaned") and not shard["paused"]:
            owner = f" (owner {shard['owner']} is dead)" if shard["owner"] else ""
            planned = shard["planned_owner"] or "nobody"
            key = shard["state"], owner, planned
            found.setdefault(key, []).append(shard["shard_id"])
    return found


def _named(shards: list[str]) -> str:
    if len(shards) == 1:
        return f"{shards[0]} is"
    return f"{len(shards)} shards ({shards[0]}, …) are"
