"""Clocks that stand still or are ahead, and waits in real time or the event loop's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kinesumer.ports import Clock


class StillClock:
    """A clock that stands still, unless its time is set."""

    def __init__(self, seconds: float = 1_800_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


class ClockAhead:
    """The clock of a machine whose time of day is ahead of another clock's."""

    def __init__(self, clock: Clock, seconds: float = 0.0) -> None:
        self._clock = clock
        self.seconds = seconds

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> float:
        return self._clock.wall() + self.seconds


PATIENCE_SECONDS = 240  # far longer than any condition needs on a busy machine


def wait_until(happened: Callable[[], object], what: str = "") -> None:
    """Wait until a condition holds. Fail after a timeout."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, f"it doesn't happen: {what}"
        time.sleep(0.02)


async def until(
    happened: Callable[[], object], seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until a condition holds, while tasks run. Fail after a timeout."""
    async with asyncio.timeout(seconds):
        while not happened():
            await asyncio.sleep(0.01)
