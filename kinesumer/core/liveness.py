"""Observe which sessions are alive. Each observer uses only its own clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from kinesumer.model.rows import Liveness, Value

# Maximum heartbeats per second of all clients together. In a larger fleet, each client
# sends heartbeats less often.
CLIENTS_PER_SECOND = 250
# The time for which AWS may still accept a signed request.
MAX_REQUEST_DELAY_SECONDS = 900.0


def interval_seconds(heartbeat_interval_seconds: float, clients: int) -> float:
    """Return the seconds between heartbeats in a fleet of this size."""
    return max(heartbeat_interval_seconds, clients / CLIENTS_PER_SECOND)


def lease_ms(configured: tuple[float, float], clients: int) -> int:
    """Return a lease's duration in milliseconds, for a fleet of this size.

    ``configured`` is (heartbeat interval, lease duration), in seconds.
    """
    heartbeat, lease = configured
    interval = interval_seconds(heartbeat, clients)
    return round(1000 * (lease if interval == heartbeat else max(lease, 4 * interval)))


@dataclass(eq=False, slots=True)
class Lease:
    """A session's right to deliver records until ``deadline``. Heartbeats extend it.

    ``deadline`` counts from the time at which the last acknowledged heartbeat was
    *first* sent. If it counted from a retry, two owners could deliver at the same time.
    """

    session: str
    deadline: float
    dead: bool = False

    def end(self) -> None:
        """End the lease, so that the session delivers nothing more."""
        self.dead, self.deadline = True, -math.inf

    def permits(self, now: float) -> bool:
        """Return whether records may be delivered to user code now."""
        return now < self.deadline and not self.dead

    @property
    def is_lost(self) -> bool:
        """Return False: the session's end takes all its shards away."""
        return False


class ShardLease(Lease):
    """A session's right to deliver one shard, whose row has a lease of its own.

    Both leases must permit it. ``row_deadline()`` returns the deadline of the row's
    lease, and -inf if the session has lost the shard.
    """

    __slots__ = ("_row_deadline", "_session_lease")

    def __init__(self, session: Lease, row_deadline: Callable[[], float]) -> None:
        self.session = session.session
        self._session_lease, self._row_deadline = session, row_deadline

    @property
    def deadline(self) -> float:  # type: ignore[override] # only others extend it
        """The time until which records may be delivered."""
        return min(self._session_lease.deadline, self._row_deadline())

    def permits(self, now: float) -> bool:
        """Return whether records may be delivered to user code now."""
        return self._session_lease.permits(now) and now < self._row_deadline()

    @property
    def is_lost(self) -> bool:
        """Return whether the session has lost the shard."""
        return self._row_deadline() == -math.inf


M = TypeVar("M", bound=Liveness)


class _Seen(NamedTuple):
    session: Value | None
    beat: Value | None
    since: float


class HeartbeatWatch:
    """Observes for how long each member's heartbeat has been unchanged."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._missing: set[tuple[Value | None, Value | None]] = set()
        self._last_observed_at: float | None = None

    def reset(self) -> None:
        """Forget all observations. Each lease counts from the next observation."""
        self._seen.clear()

    def observe(self, members: Iterable[M], now: float, max_gap: float) -> list[M]:
        """Note the members read at ``now``; return those whose leases have run out.

        If the last observation was more than ``max_gap`` seconds ago, all leases start
        again.
        """
        # The gap may be an outage of the store, in which healthy members couldn't send
        # heartbeats either.
        if self._last_observed_at is None or now - self._last_observed_at > max_gap:
            self.reset()
        self._last_observed_at = now
        seen: dict[str, _Seen] = {}
        missing, stale = set(), []
        for member in members:
            if member.dead:
                continue
            before = self._seen.get(member.client_id)
            if before is None or before[:2] != (member.session, member.beat):
                before = _Seen(member.session, member.beat, now)
            elif now - before.since >= member.lease_ms / 1000:
                stale.append(member)
            seen[member.client_id] = before
            missing.add(before[:2])
        self._seen, self._missing = seen, self._missing & missing
        return stale

    def unchanged_for(self, member: Liveness, now: float) -> float:
        """Return for how many seconds the member's heartbeat has been unchanged."""
        seen = self._seen.get(member.client_id)
        if seen is None or seen[:2] != (member.session, member.beat):
            return 0.0
        return now - seen.since

    def is_missing(self, member: Liveness, now: float, limit: float) -> bool:
        """Return whether the heartbeat has been unchanged for ``limit`` seconds.

        A missing member stays missing until its next heartbeat, even after ``reset()``.
        """
        # Remember missing members. Otherwise, after a reset, plans would move shards
        # back to a dead member.
        if self.unchanged_for(member, now) >= limit:
            self._missing.add((member.session, member.beat))
        return (member.session, member.beat) in self._missing


class BeatCounter:
    """Counts the heartbeats that one observer sees of each session."""

    def __init__(self) -> None:
        self._seen: dict[Value | None, tuple[Value | None, int]] = {}

    def beating(self, members: Iterable[M]) -> list[M]:
        """Note the members just read; return members with two observed heartbeats.

        A single heartbeat proves nothing, since it may be a request that was delayed.
        Heartbeats of leaving members don't count.
        """
        alive = []
        for member in members:
            beat, changes = self._seen.get(member.session, (member.beat, 0))
            changes += beat != member.beat and member.state != "leaving"
            self._seen[member.session] = member.beat, changes
            if changes > 1:
                alive.append(member)
        return alive


def proves_death(session: Value | None, row: Liveness | None) -> bool:
    """Return whether a consistently read row proves that a session is dead."""
    if row is None or row.dead:  # rows are pruned only long after a session's death
        return True
    # Another session can replace the row only after this session was marked dead. A
    # malformed session id proves nothing.
    return row.session != session and type(row.session) is str
