"""The clock of a real machine."""

from __future__ import annotations

import asyncio
import math
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.ports import Clock


class SystemClock:
    """Time as this machine sees it; ``now()`` goes on while the machine is suspended.

    On Linux that is CLOCK_BOOTTIME. Elsewhere ``time.monotonic()``, which may stop:
    then a lease may be trusted for too long after a suspend.
    """

    now: Callable[[], float]
    wall: Callable[[], float]

    def __init__(self) -> None:
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        # Asked once per record: a C function is half the price of a method.
        self.now = time.monotonic if boot is None else partial(time.clock_gettime, boot)
        self.wall = time.time


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

    def to_client_time(self, moment: float) -> float:
        """Return the time of the client's clock that lies as far back as a moment."""
        return self._clock.now() - (self.now() - moment)

    def blocked_since(self) -> float | None:
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


TIMER_SECONDS = 0.05
TIMER_SHARE = 0.1
"""A timer is set for at least this share of the time that user code has taken, so that
code that takes minutes costs few timers."""


class LoopLag:
    """A timer that is set while user code is busy: how late it is, is the lag.

    ``busy_since`` returns since when user code is busy; None: it isn't, and the timer
    isn't set again.
    """

    def __init__(
        self, now: Callable[[], float], busy_since: Callable[[], float | None]
    ) -> None:
        self._now = now
        self._busy_since = busy_since
        self._due: float | None = None

    def start(self) -> None:
        """Set the timer unless it is set. Called on the event loop."""
        if self._due is None:
            self._set(TIMER_SECONDS)

    def seconds(self) -> float:
        """Return how late the timer is; 0 if it isn't set."""
        return 0.0 if self._due is None else max(0.0, self._now() - self._due)

    def _set(self, delay: float) -> None:
        self._due = self._now() + delay
        asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        since = self._busy_since()
        if since is None:
            self._due = None
        else:
            self._set(max(TIMER_SECONDS, TIMER_SHARE * (self._now() - since)))
