"""Deletes the rows of members that have been dead for long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from kinesumer.context import Context

PRUNE_SECONDS = 600.0
DEAD_SECONDS = 3600.0
"""Dead rows are kept for an hour by their date, for people to see."""
LATE_SECONDS = 900.0
"""… and for this long on the leader's own clock, whatever the dates say: until then a
request that was signed before the death might still be accepted."""


class Pruner:
    """Knows since when the leader has seen sessions dead."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._next = 0.0

    def see(self, dead: list[str], now: float) -> None:
        """Take in the sessions that were read as dead just now."""
        since = self._since
        self._since = {session: since.get(session, now) for session in dead}

    async def prune(self, context: Context) -> None:
        """Delete once in a while what has been dead for an hour."""
        now = context.clock.now()
        if now < self._next:
            return
        self._next = now + PRUNE_SECONDS
        moment = rows.timestamp_text(context.clock.wall() - DEAD_SECONDS)
        partition = rows.member_key(context.app, "").pk
        keys = await context.until_available(
            lambda: context.store.not_updated_since(partition, moment)
        )
        for key in keys:
            row = await context.read(key)
            member = rows.read_member(row) if row else None
            if member is None or not member.dead:
                continue
            if self._since.get(member.session, math.inf) <= now - LATE_SECONDS:
                await context.write(writes.prune_member(context.app, member))
