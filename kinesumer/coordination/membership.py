"""Whether the owners of shards are dead: read from their rows, consistently."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.core.liveness import proves_death
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.rows import Key, LivenessRow, Value
    from kinesumer.runtime.context import ClientContext


VERIFY_SECONDS = 1.0


class DeadSessions:
    """What one session knows of others: only the dead lose their shards to it."""

    def __init__(self, context: ClientContext, session: str, dead: set[str]) -> None:
        self.dead = dead
        """Sessions proved dead, here and by who watches the members."""
        self._context = context
        self._session = session
        self._verified: dict[str, float] = {}

    async def verify(self, owners: set[tuple[str, str]]) -> bool:
        """Read rows of owners that may be dead; tell whether one is.

        Owners are (client id, session). Raises StoreUnavailableError.
        """
        now = self._context.clock.now()
        found = False
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
                found = True
        return found


PRUNE_SECONDS = 600.0


DEAD_ROW_SECONDS = 3600.0
"""Dead rows are kept for an hour by their date, for people to see."""


MAX_REQUEST_DELAY_SECONDS = 900.0
"""… and for this long on the leader's own clock, whatever the dates say: until then a
request that was signed before the death might still be accepted."""


PRUNE_BATCH_ROWS = 25
"""Rows looked at in one go: between them the leader sees who lives and who doesn't."""


MAX_PRUNE_KEYS = 10_000


class Pruner:
    """Knows since when the leader has seen sessions dead."""

    def __init__(self) -> None:
        self._since: dict[Value | None, float] = {}
        self._due: list[Key] = []
        self._next = 0.0

    def see(self, members: Iterable[LivenessRow], now: float) -> None:
        """Take in the members that were read just now."""
        since = self._since
        dead = (member.session for member in members if member.dead)
        self._since = {session: since.get(session, now) for session in dead}

    async def prune(self, context: ClientContext) -> None:
        """Delete what has been dead for an hour: some rows, looked up now and then."""
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
            if (
                self._since.get(member.session, math.inf)
                <= now - MAX_REQUEST_DELAY_SECONDS
            ):
                await context.write(writes.prune_member(context.app, member))

    async def _long_dead(self, context: ClientContext) -> list[Key]:
        moment = rows.timestamp_text(context.clock.wall() - DEAD_ROW_SECONDS)
        partition = rows.member_key(context.app, "").pk
        return await context.until_available(
            lambda: context.store.query_not_updated_since(partition, moment)
        )
