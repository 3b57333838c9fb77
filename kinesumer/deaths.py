"""Whether the owners of shards are dead: read from their rows, consistently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core.liveness import proves_death
from kinesumer.wire import rows

if TYPE_CHECKING:
    from kinesumer.context import Context

VERIFY_SECONDS = 1.0


class Deaths:
    """What one session knows of others: only the dead lose their shards to it."""

    def __init__(self, context: Context, session: str, dead: set[str]) -> None:
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
            if proves_death(session, rows.read_pulse(row) if row else None):
                self.dead.add(session)
                found = True
        return found
