"""A loop whose time jumps to the next timer, and a clock that shows it."""

from __future__ import annotations

import asyncio

EPOCH = 1_700_000_000.0


class JumpingLoop(asyncio.SelectorEventLoop):
    """Never waits for time to pass."""

    def __init__(self) -> None:
        self.seconds = 0.0
        super().__init__()

    def time(self) -> float:
        """Return the time, which only timers move on."""
        return self.seconds

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready and scheduled:
            self.seconds = max(self.seconds, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


class JumpingClock:
    """The clock of such a loop."""

    def __init__(self, loop: JumpingLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Return the loop's time."""
        return self._loop.seconds

    def wall(self) -> float:
        """Return the loop's time since 1970."""
        return EPOCH + self._loop.seconds
