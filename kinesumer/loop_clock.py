"""A clock that stands still while user code holds the event loop."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.ports import Clock

STEP_SECONDS = 2.0


class LoopClock:
    """Counts the seconds in which the client's event loop was free.

    A stretch in which the loop was held counts for two seconds at most. It may be read
    on any thread. Unless ``run()`` runs, all seconds count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_and_held = math.inf, 0.0
        """When the loop should come round next, and how late it was so far: one value,
        since other threads read it."""
        self._seen = math.inf, 0.0
        """When the loop should have come round, and when it was seen that it hadn't."""

    def now(self) -> float:
        """Return seconds since some moment."""
        due, held = self._due_and_held
        return min(self._clock.now(), due) - held

    def on_clock(self, moment: float) -> float:
        """Return the time of the client's clock that lies as far back as a moment."""
        return self._clock.now() - (self.now() - moment)

    def held_since(self) -> float | None:
        """Return since when the loop has been seen held; None if it is free.

        A call must have seen it: after a suspend threads wake up one by one.
        """
        due, _ = self._due_and_held
        now = self._clock.now()
        if now <= due:
            return None
        if self._seen[0] != due:
            self._seen = due, now
        return self._seen[1]

    async def run(self) -> None:
        """Count until cancelled."""
        held = 0.0
        while True:
            due = self._clock.now() + STEP_SECONDS
            self._due_and_held = due, held
            await asyncio.sleep(STEP_SECONDS)
            held += max(0.0, self._clock.now() - due)
