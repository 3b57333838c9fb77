"""Who is alive, judged by one observer on its own clock: no two clocks are compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kinesumer.model.rows import Liveness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.rows import Value


CLIENTS_PER_SECOND = 250
"""Maximum heartbeats per second of a fleet; larger fleets send them less often."""
MAX_REQUEST_DELAY_SECONDS = 900.0
"""How long after it was signed AWS may still accept a request."""


def interval_seconds(heartbeat_interval_seconds: float, clients: int) -> float:
    """Return the time between beats in a fleet of this size."""
    return max(heartbeat_interval_seconds, clients / CLIENTS_PER_SECOND)


def lease_ms(configured: tuple[float, float], clients: int) -> int:
    """Return the lease for (heartbeat, lease) seconds in a fleet of this size."""
    heartbeat, lease = configured
    interval = interval_seconds(heartbeat, clients)
    return round(1000 * (lease if interval == heartbeat else max(lease, 4 * interval)))


class Lease:
    """What a session may trust of itself; written by the heartbeat, read by all.

    ``deadline`` is the time at which the last acknowledged beat was *first* sent, plus
    the trust: with the time of a retry two owners could deliver at once.
    """

    __slots__ = ("dead", "deadline", "session")

    def __init__(self, session: str, deadline: float) -> None:
        self.session, self.deadline, self.dead = session, deadline, False

    def end(self) -> None:
        """Permit nothing any more: the session is over."""
        self.dead, self.deadline = True, -math.inf

    def permits(self, now: float) -> bool:
        """Tell whether a record may be handed to user code now."""
        return now < self.deadline and not self.dead


M = TypeVar("M", bound=Liveness)


class _Seen(NamedTuple):
    session: Value | None
    beat: Value | None
    since: float


class HeartbeatWatch:
    """Remembers since when each member's heartbeat has been unchanged."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._silent: set[tuple[Value | None, Value | None]] = set()
        self._last_observed_at: float | None = None

    def reset(self) -> None:
        """Forget what was seen: every window starts again at the next look."""
        self._seen.clear()

    def observe(self, members: Iterable[M], now: float, max_gap: float) -> list[M]:
        """Take in what was read at ``now`` and return the members to fence.

        After a gap between looks longer than ``max_gap`` all windows start again:
        after an outage of the store nobody healthy is fenced.
        """
        if self._last_observed_at is None or now - self._last_observed_at > max_gap:
            self.reset()
        self._last_observed_at = now
        seen: dict[str, _Seen] = {}
        silent, stale = set(), []
        for member in members:
            if member.dead:
                continue
            before = self._seen.get(member.client_id)
            if before is None or before[:2] != (member.session, member.beat):
                before = _Seen(member.session, member.beat, now)
            elif now - before.since >= member.lease_ms / 1000:
                stale.append(member)
            seen[member.client_id] = before
            silent.add(before[:2])
        self._seen, self._silent = seen, self._silent & silent
        return stale

    def unchanged_for(self, member: Liveness, now: float) -> float:
        """Return for how many seconds this member's beat has been seen unchanged."""
        seen = self._seen.get(member.client_id)
        if seen is None or seen[:2] != (member.session, member.beat):
            return 0.0
        return now - seen.since

    def is_silent(self, member: Liveness, now: float, limit: float) -> bool:
        """Tell whether a beat has been unchanged for so long, once or now.

        Who was found silent stays so until it beats: when windows start again, that
        tells nothing of it, and plans would move shards to the dead and back.
        """
        if self.unchanged_for(member, now) >= limit:
            self._silent.add((member.session, member.beat))
        return (member.session, member.beat) in self._silent


class BeatCounter:
    """Counts the beats that one observer sees of each session: who beats is alive."""

    def __init__(self) -> None:
        self._seen: dict[Value | None, tuple[Value | None, int]] = {}

    def beating(self, members: Iterable[M]) -> list[M]:
        """Take in what was read and return the members that have beaten twice.

        Once may be a request that came late, and who leaves will soon be gone.
        """
        found = []
        for member in members:
            beat, changes = self._seen.get(member.session, (member.beat, 0))
            changes += beat != member.beat and member.state != "leaving"
            self._seen[member.session] = member.beat, changes
            if changes > 1:
                found.append(member)
        return found


def proves_death(session: Value | None, row: Liveness | None) -> bool:
    """Tell whether a consistently read row proves that a session is dead.

    A row that is gone was pruned long after its death; another session in it
    registered over a death mark. What is no session at all proves nothing.
    """
    if row is None or row.dead:
        return True
    return row.session != session and type(row.session) is str
