"""Derive the states of members and shards from rows that are read repeatedly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

from kinesumer.config import Config
from kinesumer.errors import StoreUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.rows import CLIENT, LivenessRow, MemberRow, Row, ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group.lag import NO_LAGS, WINDOW_SECONDS, Lags
from kinesumer.ops.group.loads import FleetLoads, PlanReport, plan_reasons
from kinesumer.ops.group.shard_reads import NOISE_MILLIS
from kinesumer.ops.group.snapshot import Snapshot, read_members
from kinesumer.ports import Clock, StateStore
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows

K = TypeVar("K")
V = TypeVar("V")

# Clients send heartbeats in this interval, so a shorter one shows nothing new.
MIN_INTERVAL_SECONDS = Config().heartbeat_interval_seconds
POLL_SECONDS = 0.5


def _heartbeat_seconds(member: MemberRow | LivenessRow) -> float:
    """Return a client's interval of heartbeats: one in each quarter of its lease."""
    return member.lease_ms / 4000


def stall_limit_seconds(member: MemberRow) -> float:
    """Return the age above which a heartbeat is overdue: one and a half intervals."""
    return 1.5 * _heartbeat_seconds(member)


@dataclass(frozen=True)
class FleetView:
    """A snapshot of a group, with the lags of shards, and for how long states last."""

    snapshot: Snapshot
    # The seconds for which each session's heartbeat has been unchanged.
    heartbeat_ages: Mapping[str, float] = field(default_factory=dict)
    lags: Lags = NO_LAGS
    # Owned shards that lag and whose position has not moved for a minute.
    stuck: frozenset[ShardKey] = frozenset()
    # The seconds for which each shard that isn't consumed has been seen so.
    unconsumed_ages: Mapping[ShardKey, float] = field(default_factory=dict)

    @cached_property
    def loads(self) -> FleetLoads:
        """The loads that the clients report."""
        return FleetLoads(self.snapshot)

    @cached_property
    def plan(self) -> PlanReport:
        """The reasons for the plan."""
        return plan_reasons(self.snapshot, self.loads)

    def age(self, member: MemberRow) -> float:
        """Return the seconds since a member's heartbeat changed; 0 if unknown."""
        return self.heartbeat_ages.get(member.session, 0.0)

    def is_stalled(self, member: MemberRow) -> bool:
        """Return whether the next heartbeat of a live member is overdue."""
        return self.age(member) > stall_limit_seconds(member)

    def states(self, member: MemberRow) -> list[str]:
        """Return a member's states, the worst first; ``up`` if it has no problems."""
        joining = member.range is None and member.kind == CLIENT
        states = [
            ("silent", self.is_stalled(member)),
            (member.state, member.state != "up"),
            ("drained", member.drained),
            ("joining", joining),
        ]
        return [state for state, is_so in states if is_so] or ["up"]

    @cached_property
    def _stalled(self) -> frozenset[str]:
        alive = self.snapshot.alive
        return frozenset(m.session for m in alive if self.is_stalled(m))

    def expected_lag_millis(self, session: str) -> int:
        """Return how far the positions of a session's shards trail if it reads all.

        Return 0 if its heartbeat is overdue, because then it reads nothing.
        """
        is_stalled = session in self._stalled
        return 0 if is_stalled else self.snapshot.expected_lag_millis(session)

    def backlog_millis(self, row: ShardRow) -> int | None:
        """Return a shard's lag, or 0 if commits explain it; None if it is unknown."""
        millis = self.lags.millis.get(row.key)
        is_usual = millis is not None and millis <= self.expected_lag_millis(row.owner)
        return 0 if is_usual else millis

    def caught_up(self, rows: Iterable[ShardRow]) -> bool | None:
        """Return whether all lags of unended shards are 0 or explained by commits.

        None if this is unknown.
        """
        backlogs = [self.backlog_millis(row) for row in rows if not row.ended]
        if any(backlogs):
            return False
        return None if None in backlogs or not backlogs else True

    def millis_behind(self, arn: str) -> int | None:
        """Return the largest lag of a stream's shards; None if none is known."""
        known, rows = self.lags.millis, self.snapshot.shards[arn]
        return max((known[r.key] for r in rows if r.key in known), default=None)


@dataclass(frozen=True)
class Observation(FleetView):
    """A view, and the times since which its values have been unchanged."""

    at: float = 0.0  # seconds on the observer's monotonic clock
    # By session: the heartbeat's counter, and the time when it was first seen.
    heartbeats: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    # By shard: the position, and the time when it was first seen.
    positions: Mapping[ShardKey, tuple[Position | None, float]] = field(
        default_factory=dict
    )
    # The last client that owned each shard, even if it has no owner now.
    owners: Mapping[ShardKey, str] = field(default_factory=dict)


def _track_unchanged(
    before: Mapping[K, tuple[V, float]], values: Mapping[K, V], now: float
) -> dict[K, tuple[V, float]]:
    """Return each value with the time since which the value has been unchanged."""
    since = {
        key: first for key, (value, first) in before.items() if values.get(key) == value
    }
    return {key: (value, since.get(key, now)) for key, value in values.items()}


def observe(
    before: Observation | None, snapshot: Snapshot, lags: Lags, now: float
) -> Observation:
    """Return a new observation; an unchanged value keeps its time from ``before``."""
    old = before or Observation(snapshot)
    rows, ages = list(snapshot.rows), old.unconsumed_ages
    beats = {member.session: member.beat for member in snapshot.alive}
    heartbeats = _track_unchanged(old.heartbeats, beats, now)
    positions = _track_unchanged(
        old.positions, {row.key: row.position for row in rows}, now
    )
    return Observation(
        snapshot,
        {session: now - since for session, (_, since) in heartbeats.items()},
        lags,
        frozenset(
            row.key
            for row in rows
            if row.owner
            and lags.millis.get(row.key, 0)
            > max(NOISE_MILLIS, snapshot.expected_lag_millis(row.owner))
            and now - positions[row.key][1] >= WINDOW_SECONDS
        ),
        {
            key: ages[key] + now - old.at if key in ages else 0.0
            for arn in snapshot.shards
            for key in snapshot.unconsumed(arn)
        },
        now,
        heartbeats,
        positions,
        {row.key: row.owner_id or old.owners.get(row.key, "") for row in rows},
    )


class HeartbeatObserver:
    """Measures how long the heartbeats of an app's members stay unchanged."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._beats: dict[str, tuple[int, float]] = {}

    async def watch(self, store: StateStore, snapshot: Snapshot) -> dict[str, float]:
        """Wait until each heartbeat has changed or is overdue, and return the ages."""
        first = {member.session: member.beat for member in snapshot.alive}
        limit = max((stall_limit_seconds(m) for m in snapshot.alive), default=0.0)
        ages = self._record(snapshot.alive)
        deadline = time.monotonic() + limit + POLL_SECONDS
        waiting = set(first)
        while waiting and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            members = await read_members(store, self._app)
            ages |= self._record(members)
            waiting -= {
                m.session for m in members if m.dead or m.beat != first.get(m.session)
            }
        return ages

    def _record(self, members: list[MemberRow]) -> dict[str, float]:
        now = time.monotonic()
        beats = {member.session: member.beat for member in members}
        self._beats |= _track_unchanged(self._beats, beats, now)
        return {session: now - self._beats[session][1] for session in beats}


class ClientHealth(NamedTuple):
    """The health of one client, decided from its row alone."""

    alive: bool | None  # None if the state store didn't answer
    ready: bool
    state: str | None
    why: str  # the reason, in words


async def check_client(
    store: StateStore, clock: Clock, app: str, client_id: str
) -> ClientHealth:
    """Read a client's row until its heartbeat changes, for at most its lease.

    For a healthy client two reads are enough, a quarter of the lease apart. Raises
    CorruptRowError, and the state store's permanent errors.
    """
    key = rows.member_key(app, client_id)
    try:
        first = await store.get(key)
    except StoreUnavailableError as error:
        return _unknown(error)
    if first is None:
        return ClientHealth(False, False, None, "no client of this id has registered")
    before = rows.read_liveness(first)
    lease = before.lease_ms / 1000
    began, pause = clock.now(), _heartbeat_seconds(before)
    failure: StoreUnavailableError | None = None
    while clock.now() - began < lease:
        await asyncio.sleep(pause)
        pause = _heartbeat_seconds(before) / 2
        try:
            row = await store.get(key)
        except StoreUnavailableError as error:
            failure = error
            continue
        # A row that is marked dead is read again, as a fenced client registers again.
        if row is not None and not (now := rows.read_liveness(row)).dead:
            if (now.session, now.beat) != (before.session, before.beat):
                return _alive(row)
    # During an outage, no heartbeat can be stored, so the client may be alive.
    return _unknown(failure) if failure is not None else _dead(before, lease)


def _alive(row: Row) -> ClientHealth:
    member = rows.read_member(row)
    is_up, is_planned = member.state == "up", member.range is not None
    plan = "has its part of the plan" if is_planned else "waits for a plan"
    why = "its heartbeat advances" + (f", and it {plan}" if is_up else "")
    return ClientHealth(True, is_up and is_planned, member.state, why)


def _dead(last: LivenessRow, lease: float) -> ClientHealth:
    state, why = "dead", "it left or was fenced, and didn't return in"
    if not last.dead:
        state, why = escape_unprintable(last.state), "no heartbeat for its lease of"
    return ClientHealth(False, False, state, f"{why} {lease:g} s")


def _unknown(error: StoreUnavailableError) -> ClientHealth:
    return ClientHealth(None, False, None, f"the state store didn't answer: {error}")
