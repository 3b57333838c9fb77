"""Read, fence and prune the members of a group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kinesumer.core import plan
from kinesumer.core.liveness import (
    MAX_REQUEST_DELAY_SECONDS,
    HeartbeatWatch,
    Lease,
    proves_death,
)
from kinesumer.errors import StoreUnavailableError
from kinesumer.model.rows import Key, LeaderRow, LivenessRow, MemberRow, Row, Value
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes

# The part of the lease after which a member without a heartbeat counts as missing. It
# lies between two and three heartbeats. Commands call it silent earlier, as soon as one
# heartbeat is overdue.
MISSING_LEASE_SHARE = 0.625
# Minimum time between two checks of the same owner. The owner's row is then read at
# every fourth poll, and the delay is short beside a lease.
VERIFY_SECONDS = 1.0
# The time between two searches for rows to delete: a sixth of DEAD_ROW_SECONDS, so
# that no row stays for much longer.
PRUNE_SECONDS = 600.0
# The row of a dead member or app stays for a while, so that people can see it.
DEAD_ROW_SECONDS = 3600.0
# How many rows are deleted per poll. More would delay the leader's next read of the
# members: 25 reads and writes, of some 10 ms each, take half of its interval.
PRUNE_BATCH_ROWS = 25


class SessionRenewed(NamedTuple):
    """The store has applied a registration or heartbeat, and returned this row."""

    lease: Lease
    row: MemberRow


class SessionLost(NamedTuple):
    """The session is dead: it has lost all its shards. Another session follows."""

    lease: Lease


class Failed(NamedTuple):
    """The heartbeat has stopped because of this error."""

    error: BaseException


class LeaderElected(NamedTuple):
    """The session leads the group from now on."""


Event = SessionRenewed | SessionLost | Failed | LeaderElected

Notify = Callable[[Event], None]


async def fence(context: ClientContext, member: LivenessRow) -> bool | None:
    """Mark a member as dead; return whether its row now proves the death.

    Return None if the store doesn't answer. The write isn't repeated: after an outage,
    a repeated write could fence a member that had no chance to send a heartbeat.
    """
    timestamp = rows.timestamp_text(context.clock.wall())
    write = writes.fence(context.app, member, timestamp)
    try:
        written = await context.store.write(write)
    except StoreUnavailableError as error:
        context.failure_log.record_failure("state store", error)
        return None
    if not _proves_death(member.session, written.row):
        return False
    logger.warning(
        "client %s is dead: no heartbeat for %.1f s",
        escape_unprintable(member.client_id),
        member.lease_ms / 1000,
        extra={"client_id": member.client_id, "session": member.session},
    )
    return True


async def read_death(
    context: ClientContext, client_id: str, session: str, dead: set[str]
) -> bool:
    """Read a session's row; if it proves the death, add the session to ``dead``.

    Return whether it does. Raises StoreUnavailableError.
    """
    # Read consistently: a stale read may show the row of the client's previous
    # session, as if this session had been replaced.
    row = await context.store.get(rows.member_key(context.app, client_id))
    if is_dead := _proves_death(session, row):
        dead.add(session)
    return is_dead


def _proves_death(session: Value | None, row: Row | None) -> bool:
    return proves_death(session, rows.read_liveness(row) if row else None)


class MemberWatcher:
    """Reads the members for one session, and fences those without heartbeats."""

    def __init__(self, context: ClientContext, lease: Lease) -> None:
        self.context = context
        # The live clients as last read, in the order of their ids.
        self.members: list[MemberRow] = []
        # Sessions that this client has read as marked dead, or has marked itself.
        self.dead: set[str] = set()
        self.pruner: Pruner = Pruner()
        self._lease = lease
        self._watch = HeartbeatWatch()

    async def read_members(self, leader: LeaderRow | None, max_gap: float) -> None:
        """Read all members, and fence those whose leases have run out.

        If the last read is more than ``max_gap`` seconds ago, the leases of all members
        are counted from the beginning again.
        """
        context = self.context
        partition = rows.member_key(context.app, "").pk
        stored = await context.query(partition, consistent=False)
        liveness = [rows.read_liveness(row) for row in stored]
        alive = [row for row, m in zip(stored, liveness, strict=True) if not m.dead]
        members = context.parse_rows(rows.read_member, alive)
        self.dead.update(str(member.session) for member in liveness if member.dead)
        # Take the time after the read: the time without a heartbeat must not be counted
        # from before the last heartbeat was seen.
        now = context.clock.now()
        self.pruner.observe(liveness, now)
        if not self._lease.permits(now):
            # This client's lease has run out, so its earlier observations are too old.
            self._watch.reset()
        expired = self._watch.observe(liveness, now, max_gap)
        self.members = [self._with_liveness(m, now) for m in plan.live_clients(members)]
        for member in expired:
            if self._should_fence(member, leader):
                await self._fence(member)

    async def read_leader(self, leader: LeaderRow) -> bool:
        """Read only the leader's row; return whether the leader sends heartbeats."""
        context = self.context
        before = {m.client_id: m for m in self.members}.get(leader.client_id)
        key, store = rows.member_key(context.app, leader.client_id), context.store
        row = await context.until_available(lambda: store.get(key, consistent=False))
        now = context.parse_row(rows.read_member, row)
        if now is None or proves_death(leader.session, now):
            return False
        others = [m for m in self.members if m.client_id != now.client_id]
        self.members = plan.live_clients([*others, now])
        return before is None or before.beat != now.beat

    async def is_dead(self, client_id: str, session: str) -> bool:
        """Return whether a session is dead. Read its row if necessary."""
        return session in self.dead or await self.context.until_available(
            lambda: read_death(self.context, client_id, session, self.dead)
        )

    def _with_liveness(self, member: MemberRow, now: float) -> MemberRow:
        """Return a member, with state "missing" if it has missed two heartbeats.

        Before the member is fenced, the leader plans its shards for other clients. So
        these can claim the shards right after the member is fenced.
        """
        limit = MISSING_LEASE_SHARE * member.lease_ms / 1000
        if member.state != "up" or not self._watch.is_missing(member, now, limit):
            return member
        return member._replace(state="missing")

    def _should_fence(self, member: LivenessRow, leader: LeaderRow | None) -> bool:
        """Return whether to fence a member.

        The leader fences any other member. Other members fence only the leader.
        """
        if member.session == self._lease.session:
            return False
        if leader is None or leader.session == self._lease.session:
            return True
        if type(member.session) is str:
            return member.session == leader.session
        # The session in the row is damaged. Compare client ids, so that a dead leader
        # can still be fenced.
        return member.client_id == leader.client_id

    async def _fence(self, member: LivenessRow) -> None:
        is_dead = await fence(self.context, member)
        if is_dead is None:  # an outage, in which no member can send heartbeats
            self._watch.reset()
        elif is_dead:
            self.dead.add(str(member.session))
            self.members = [m for m in self.members if m.session != member.session]


class DeadSessions:
    """The sessions that one session knows to be dead, and may take shards from."""

    def __init__(self, context: ClientContext, session: str, dead: set[str]) -> None:
        # Shared with the MemberWatcher, which adds sessions that it sees dead.
        self.dead = dead
        self._context = context
        self._session = session
        self._verified: dict[str, float] = {}

    async def verify(self, owners: set[tuple[str, str]]) -> bool:
        """Read the rows of owners that may be dead; return whether one is dead.

        Each owner is a (client id, session) pair. Raises StoreUnavailableError.
        """
        now = self._context.clock.now()
        any_dead = False
        for client_id, session in owners:
            since = now - self._verified.get(session, -VERIFY_SECONDS)
            if session == self._session or since < VERIFY_SECONDS:
                continue
            self._verified[session] = now
            if await read_death(self._context, client_id, session, self.dead):
                any_dead = True
        return any_dead


class Pruner:
    """Deletes the rows of members that died long ago."""

    def __init__(self) -> None:
        # The time at which each session was first seen dead, by this client's clock.
        self._since: dict[Value | None, float] = {}
        self._due: list[Key] = []
        self._next = 0.0

    def observe(self, members: Iterable[LivenessRow], now: float) -> None:
        """Record which members were dead when they were read at ``now``."""
        since = self._since
        dead = (member.session for member in members if member.dead)
        self._since = {session: since.get(session, now) for session in dead}

    async def prune(self, context: ClientContext) -> None:
        """Delete some rows of members that have been dead for an hour.

        The dates in rows may be wrong. So this client must also have known of the death
        for so long that the store no longer accepts requests signed before it.
        """
        now = context.clock.now()
        if now >= self._next:
            self._next = now + PRUNE_SECONDS
            self._due = await self._long_dead(context)
        due = self._due[:PRUNE_BATCH_ROWS]
        del self._due[:PRUNE_BATCH_ROWS]
        for key in due:
            row = await context.read(key)
            member = rows.read_liveness(row) if row else None
            if member is None or not member.dead:
                continue
            since = self._since.get(member.session, math.inf)
            if since <= now - MAX_REQUEST_DELAY_SECONDS:
                await context.write(writes.prune_member(context.app, member))

    async def _long_dead(self, context: ClientContext) -> list[Key]:
        timestamp = rows.timestamp_text(context.clock.wall() - DEAD_ROW_SECONDS)
        partition = rows.member_key(context.app, "").pk
        return await context.until_available(
            lambda: context.store.query_not_updated_since(partition, timestamp)
        )
