"""The group's members as one client sees them: reading, fencing and pruning."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.core import plan
from kinesumer.core.liveness import (
    MAX_REQUEST_DELAY_SECONDS,
    HeartbeatWatch,
    proves_death,
)
from kinesumer.errors import StoreUnavailableError
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.core.liveness import Lease
    from kinesumer.model.rows import Key, LeaderRow, LivenessRow, MemberRow, Value
    from kinesumer.runtime.context import ClientContext

SILENT_LEASE_SHARE = 0.625
"""Share of the lease after which a member without a heartbeat counts as silent: between
two and three heartbeats."""
VERIFY_SECONDS = 1.0
"""Minimum time between two checks of the same owner."""
PRUNE_SECONDS = 600.0
"""How often the leader looks for rows to prune."""
DEAD_ROW_SECONDS = 3600.0
"""How long the row of a dead member stays, so that people can see it."""
PRUNE_BATCH_ROWS = 25
"""Rows pruned per poll: the leader reads the members in between."""
MAX_PRUNE_KEYS = 10_000


async def fence(context: ClientContext, member: LivenessRow) -> bool:
    """Mark a member as dead; return whether its row now proves the death.

    One attempt only: after an outage, a repeated one could fence a member that had no
    chance to send a heartbeat. Raises StoreUnavailableError.
    """
    timestamp = rows.timestamp_text(context.clock.wall())
    written = await context.store.write(writes.fence(context.app, member, timestamp))
    now = rows.read_liveness(written.row) if written.row else None
    if not proves_death(member.session, now):
        return False
    logger.warning(
        "client %s is dead: no heartbeat for %.1f s",
        escape_unprintable(member.client_id),
        member.lease_ms / 1000,
        extra={"client_id": member.client_id, "session": member.session},
    )
    return True


class MemberWatcher:
    """Reads the members for one session, and fences those without heartbeats."""

    def __init__(self, context: ClientContext, lease: Lease) -> None:
        self.members: list[MemberRow] = []
        """Live clients as last read, by index."""
        self.dead: set[str] = set()
        """Sessions whose death mark was read or written."""
        self._context = context
        self._lease = lease
        self._watch = HeartbeatWatch()
        self._pruner = Pruner()

    def use_context(self, context: ClientContext) -> None:
        """Use the ports of the event loop that polls the members."""
        self._context = context

    async def read_members(self, leader: LeaderRow | None, max_gap: float) -> None:
        """Read all members, and fence those whose leases have run out.

        After a gap of more than ``max_gap`` seconds since the last read, each member
        gets its whole lease again.
        """
        context = self._context
        partition = rows.member_key(context.app, "").pk
        stored = await context.until_available(lambda: context.store.query(partition))
        liveness = [rows.read_liveness(row) for row in stored]
        alive = [row for row, m in zip(stored, liveness, strict=True) if not m.dead]
        members = context.parse_rows(rows.read_member, alive)
        self.dead.update(str(member.session) for member in liveness if member.dead)
        now = context.clock.now()
        self._pruner.observe(liveness, now)
        if not self._lease.permits(now):
            # Our own lease has lapsed: what we saw of other heartbeats is stale.
            self._watch.reset()
        expired = self._watch.observe(liveness, now, max_gap)
        self.members = [self._with_liveness(m, now) for m in plan.live_clients(members)]
        for member in expired:
            if self._should_fence(member, leader):
                await self._fence(member)

    async def read_leader(self, leader: LeaderRow) -> bool:
        """Read the leader's member row only; return whether it sends heartbeats."""
        before = {m.client_id: m for m in self.members}.get(leader.client_id)
        key = rows.member_key(self._context.app, leader.client_id)
        store = self._context.store
        row = await self._context.until_available(
            lambda: store.get(key, consistent=False)
        )
        now = self._context.parse_row(rows.read_member, row)
        if now is None or proves_death(leader.session, now):
            return False
        others = [m for m in self.members if m.client_id != now.client_id]
        self.members = plan.live_clients([*others, now])
        return before is None or before.beat != now.beat

    async def is_dead(self, client_id: str, session: str) -> bool:
        """Return whether a session is dead, reading its row if that isn't known."""
        if session not in self.dead:
            key = rows.member_key(self._context.app, client_id)
            row = await self._context.read(key)
            if proves_death(session, rows.read_liveness(row) if row else None):
                self.dead.add(session)
        return session in self.dead

    async def prune(self) -> None:
        """Delete the rows of members that died long ago."""
        await self._pruner.prune(self._context)

    def _with_liveness(self, member: MemberRow, now: float) -> MemberRow:
        """Return a member, with state "silent" if it has missed two heartbeats.

        Plans move its shards early: when it is fenced, the new owners are waiting.
        """
        limit = SILENT_LEASE_SHARE * member.lease_ms / 1000
        if member.state != "up" or not self._watch.is_silent(member, now, limit):
            return member
        return member._replace(state="silent")

    def _should_fence(self, member: LivenessRow, leader: LeaderRow | None) -> bool:
        """Return whether to fence a member.

        The leader fences any other member; the others fence only the leader.
        """
        if member.session == self._lease.session:
            return False
        if leader is None or leader.session == self._lease.session:
            return True
        if type(member.session) is str:
            return member.session == leader.session
        return member.client_id == leader.client_id

    async def _fence(self, member: LivenessRow) -> None:
        try:
            is_dead = await fence(self._context, member)
        except StoreUnavailableError as error:
            self._context.failure_log.record_failure("state store", error)
            self._watch.reset()
            return
        if is_dead:
            self.dead.add(str(member.session))
            self.members = [m for m in self.members if m.session != member.session]


class DeadSessions:
    """The dead sessions that one session knows of: only those lose shards to it."""

    def __init__(self, context: ClientContext, session: str, dead: set[str]) -> None:
        self.dead = dead
        """Shared with the MemberWatcher, which adds those that it sees."""
        self._context = context
        self._session = session
        self._verified: dict[str, float] = {}

    async def verify(self, owners: set[tuple[str, str]]) -> bool:
        """Read the rows of owners that may be dead; return whether one is dead.

        Owners are (client id, session). Raises StoreUnavailableError.
        """
        now = self._context.clock.now()
        any_dead = False
        for client_id, session in owners:
            if session == self._session:
                continue
            if now - self._verified.get(session, -VERIFY_SECONDS) < VERIFY_SECONDS:
                continue
            self._verified[session] = now
            row = await self._context.store.get(
                rows.member_key(self._context.app, client_id)
            )
            if proves_death(session, rows.read_liveness(row) if row else None):
                self.dead.add(session)
                any_dead = True
        return any_dead


class Pruner:
    """Deletes the rows of members that died long ago."""

    def __init__(self) -> None:
        self._since: dict[Value | None, float] = {}
        """When each dead session was first seen dead, on this client's clock."""
        self._due: list[Key] = []
        self._next = 0.0

    def observe(self, members: Iterable[LivenessRow], now: float) -> None:
        """Note the members that were read at ``now``."""
        since = self._since
        dead = (member.session for member in members if member.dead)
        self._since = {session: since.get(session, now) for session in dead}

    async def prune(self, context: ClientContext) -> None:
        """Delete some rows of members that have been dead for an hour.

        The dates in the rows may be wrong. A request signed before the death could
        still be accepted, so the row must also have been seen dead for long enough.
        """
        now = context.clock.now()
        if now >= self._next:
            self._next = now + PRUNE_SECONDS
            self._due = (await self._long_dead(context))[:MAX_PRUNE_KEYS]
        due, self._due = self._due[:PRUNE_BATCH_ROWS], self._due[PRUNE_BATCH_ROWS:]
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
