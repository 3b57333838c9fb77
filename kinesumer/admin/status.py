"""What ``kinesumer status`` asks: the rows, whose heart beats, and the lags."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from kinesumer.admin import snapshot
from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag import Lags, read_lags
from kinesumer.admin.snapshot import state
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


class StatusQuery:
    """What is asked, and what was seen of the heartbeats so far."""

    def __init__(
        self, app: str, table: str, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self.app, self.table = app, table
        self._roles = roles
        self._lag = lag
        self._hearts = HeartbeatObserver(app)

    async def answer(self, clients: ClientFactory, store: StateStore) -> dict[str, Any]:
        """Read the rows, watch the hearts, ask for lags; return it as JSON."""
        found = await snapshot.take_known(store, self.app, self.table)
        lags = Lags({}, {})
        silent, lags = await asyncio.gather(
            self._hearts.watch(store, found),
            read_lags(clients, found.shards, self._roles)
            if self._lag
            else _nothing(lags),
        )
        return report(self.app, self.table, found, lags, silent)


async def _nothing(value: Lags) -> Lags:
    return value


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
    clients = [member for member in found.alive if member.kind == CLIENT]
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


def stall_limit_seconds(member: MemberRow) -> float:
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
        "stalled": silent is not None and silent > stall_limit_seconds(member),
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


BEAT_LOOK_SECONDS = 0.5


class HeartbeatObserver:
    """What was seen of an app's heartbeats so far."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._beats: dict[str, tuple[int, float]] = {}

    async def watch(self, store: StateStore, found: Snapshot) -> dict[str, float]:
        """Return since when each heart was seen not to beat, by session.

        Looks until all have beaten, or for as long as a heart may need.
        """
        first = {member.session: member.beat for member in found.alive}
        patience = max((stall_limit_seconds(m) for m in found.alive), default=0.0)
        silent = self._note(found.alive)
        deadline = time.monotonic() + patience + BEAT_LOOK_SECONDS
        waiting = set(first)
        while waiting and time.monotonic() < deadline:
            await asyncio.sleep(BEAT_LOOK_SECONDS)
            members = await snapshot.read_members(store, self._app)
            silent |= self._note(members)
            waiting -= {m.session for m in members if m.dead}
            waiting -= {m.session for m in members if m.beat != first.get(m.session)}
        return silent

    def _note(self, members: list[MemberRow]) -> dict[str, float]:
        now = time.monotonic()
        beats = {member.session: member.beat for member in members}
        self._beats |= track_unchanged(self._beats, beats, now)
        return {session: now - self._beats[session][1] for session in beats}


K = TypeVar("K")


V = TypeVar("V")


def track_unchanged(
    before: Mapping[K, tuple[V, float]], values: Mapping[K, V], now: float
) -> dict[K, tuple[V, float]]:
    """Return each value with the moment of the first of the looks that showed it."""
    return {
        key: seen
        if (seen := before.get(key)) is not None and seen[0] == value
        else (value, now)
        for key, value in values.items()
    }
