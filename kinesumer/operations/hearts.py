"""Whose heart beats: a heartbeat is a counter, and looked at twice."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kinesumer.operations import snapshot
from kinesumer.operations.report import stalled_after
from kinesumer.operations.unchanged import unchanged

if TYPE_CHECKING:
    from kinesumer.operations.snapshot import Snapshot
    from kinesumer.ports import StateStore
    from kinesumer.wire.rows import MemberRow

BEAT_LOOK_SECONDS = 0.5


class Hearts:
    """What was seen of an app's heartbeats so far."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._beats: dict[str, tuple[int, float]] = {}

    async def watch(self, store: StateStore, found: Snapshot) -> dict[str, float]:
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
            members = await snapshot.read_members(store, self._app)
            silent |= self._note(members)
            waiting -= {m.session for m in members if m.dead}
            waiting -= {m.session for m in members if m.beat != first.get(m.session)}
        return silent

    def _note(self, members: list[MemberRow]) -> dict[str, float]:
        now = time.monotonic()
        beats = {member.session: member.beat for member in members}
        self._beats |= unchanged(self._beats, beats, now)
        return {session: now - self._beats[session][1] for session in beats}
