"""Compare snapshots of a fleet over time: heartbeats, positions and owners."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesumer.admin.snapshot import read_members
from kinesumer.model.rows import CLIENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore

K = TypeVar("K")
V = TypeVar("V")

STUCK_SECONDS = 60.0
STUCK_MIN_LAG_MILLIS = 10_000
POLL_SECONDS = 0.5


def stall_limit_seconds(member: MemberRow) -> float:
    """Return the age from which a heartbeat is overdue: one and a half intervals."""
    return 1.5 * member.lease_ms / 4000


def track_unchanged(
    before: Mapping[K, tuple[V, float]], values: Mapping[K, V], now: float
) -> dict[K, tuple[V, float]]:
    """Return each value with the time since which it has been the same."""
    return {
        key: seen
        if (seen := before.get(key)) is not None and seen[0] == value
        else (value, now)
        for key, value in values.items()
    }


class Observation(NamedTuple):
    """A snapshot, and for how long its values have been unchanged."""

    snapshot: Snapshot
    at: float
    """Seconds on the observer's monotonic clock."""
    heartbeats: Mapping[str, tuple[int, float]] = {}
    """By session: the counter, and when it was first seen."""
    positions: Mapping[ShardKey, tuple[Position | None, float]] = {}
    """By shard: the position, and when it was first seen."""
    owners: Mapping[ShardKey, str] = {}
    """The last client that owned each shard, even if it has no owner now."""
    stuck: frozenset[ShardKey] = frozenset()
    """Owned shards that lag and whose position has not moved for a minute."""

    def age(self, session: str) -> float:
        """Return for how long a session's heartbeat has been seen unchanged."""
        return self.at - self.heartbeats[session][1]

    def is_stalled(self, member: MemberRow) -> bool:
        """Return whether the next heartbeat of a live member is overdue."""
        return self.age(member.session) > stall_limit_seconds(member)

    def states(self, member: MemberRow) -> list[str]:
        """Return a member's states, the worst first; ``up`` stands alone."""
        joining = member.range is None and member.kind == CLIENT
        states = [
            *(["silent"] if self.is_stalled(member) else []),
            *([member.state] if member.state != "up" else []),
            *(["drained"] if member.drained else []),
            *(["joining"] if joining else []),
        ]
        return states or ["up"]


def observe(
    before: Observation | None,
    snapshot: Snapshot,
    millis_behind: Mapping[ShardKey, int],
    now: float,
) -> Observation:
    """Return a new observation; unchanged values keep the time from before."""
    old = before or Observation(snapshot, now)
    rows = [row for page in snapshot.shards.values() for row in page]
    beats = {member.session: member.beat for member in snapshot.alive}
    heartbeats = track_unchanged(old.heartbeats, beats, now)
    positions = track_unchanged(
        old.positions, {row.key: row.position for row in rows}, now
    )
    owners = {row.key: row.owner_id or old.owners.get(row.key, "") for row in rows}
    stuck = frozenset(
        row.key
        for row in rows
        if _should_advance(row, millis_behind)
        and now - positions[row.key][1] >= STUCK_SECONDS
    )
    return Observation(snapshot, now, heartbeats, positions, owners, stuck)


def _should_advance(row: ShardRow, millis_behind: Mapping[ShardKey, int]) -> bool:
    return bool(row.owner) and millis_behind.get(row.key, 0) >= STUCK_MIN_LAG_MILLIS


class HeartbeatObserver:
    """Measures how long the heartbeats of an app's members stay unchanged."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._beats: dict[str, tuple[int, float]] = {}

    async def watch(self, store: StateStore, snapshot: Snapshot) -> dict[str, float]:
        """Return each heartbeat's age in seconds, by session.

        Polls until every heartbeat has changed, or is overdue.
        """
        first = {member.session: member.beat for member in snapshot.alive}
        limit = max((stall_limit_seconds(m) for m in snapshot.alive), default=0.0)
        ages = self._record(snapshot.alive)
        deadline = time.monotonic() + limit + POLL_SECONDS
        waiting = set(first)
        while waiting and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            members = await read_members(store, self._app)
            ages |= self._record(members)
            waiting -= {m.session for m in members if m.dead}
            waiting -= {m.session for m in members if m.beat != first.get(m.session)}
        return ages

    def _record(self, members: list[MemberRow]) -> dict[str, float]:
        now = time.monotonic()
        beats = {member.session: member.beat for member in members}
        self._beats |= track_unchanged(self._beats, beats, now)
        return {session: now - self._beats[session][1] for session in beats}
