"""What ``kinesumer status`` asks: the rows, whose heart beats, and the lags."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from kinesumer.errors import KinesumerError
from kinesumer.operations import snapshot
from kinesumer.operations.lag import Lags, read_lags
from kinesumer.operations.reaching import NO_ROLES, Roles
from kinesumer.operations.report import report, stalled_after
from kinesumer.operations.unchanged import unchanged

if TYPE_CHECKING:
    from kinesumer.aws.session import Clients
    from kinesumer.operations.snapshot import Snapshot
    from kinesumer.ports import StateStore
    from kinesumer.wire.rows import MemberRow

BEAT_LOOK_SECONDS = 0.5


class Question:
    """What is asked, and what was seen of the heartbeats so far."""

    def __init__(
        self, app: str, table: str, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self.app, self.table = app, table
        self._roles = roles
        self._lag = lag
        self._beats: dict[str, tuple[int, float]] = {}

    async def answer(self, clients: Clients, store: StateStore) -> dict[str, Any]:
        """Read the rows, watch the hearts, ask for lags; return it as JSON."""
        found = await snapshot.take(store, self.app)
        if not (found.members or found.streams or found.corrupt):
            raise KinesumerError(
                f"table {self.table} knows no app {self.app!r}: nobody has consumed "
                "under this name there; check --app, --table and --region"
            )
        lags = Lags({}, {})
        silent, lags = await asyncio.gather(
            self._watch_hearts(store, found),
            read_lags(clients, found.shards, self._roles)
            if self._lag
            else _nothing(lags),
        )
        return report(self.app, self.table, found, lags, silent)

    async def _watch_hearts(
        self, store: StateStore, found: Snapshot
    ) -> dict[str, float]:
        """Return since when each heart was seen not to beat, by session.

        Looks until all have beaten, or for as long as a heart may need.
        """
        first = {member.session: member.beat for member in found.alive}
        patience = max((stalled_after(m) for m in found.alive), default=0.0)
        silent = self._note(found.alive)
        deadline = time.monotonic() + patience + BEAT_LOOK_SECONDS
        waiting = set(first)
        while waiting and time.monotonic() < deadline:
            await asyncio.sleep(BEAT_LOOK_SECONDS)
            members = await snapshot.read_members(store, self.app)
            silent |= self._note(members)
            waiting -= {m.session for m in members if m.dead}
            waiting -= {m.session for m in members if m.beat != first.get(m.session)}
        return silent

    def _note(self, members: list[MemberRow]) -> dict[str, float]:
        now = time.monotonic()
        beats = {member.session: member.beat for member in members}
        self._beats |= unchanged(self._beats, beats, now)
        return {session: now - self._beats[session][1] for session in beats}


async def _nothing(value: Lags) -> Lags:
    return value
