"""Clocks of the machine and of the event loop."""

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
    """The machine's clocks. ``now()`` also counts the time of a suspend.

    It uses CLOCK_BOOTTIME on Linux, and ``time.monotonic()`` elsewhere. The latter may
    stop during a suspend, and a client may trust its lease for too long afterwards.
    """

    now: Callable[[], float]
    wall: Callable[[], float]

    def __init__(self) -> None:
        boot = getattr(time, "CLOCK_BOOTTIME", None)
        # Called once per record: a C function costs half as much as a method.
        self.now = time.monotonic if boot is None else partial(time.clock_gettime, boot)
        self.wall = time.time


STEP_SECONDS = 2.0


class LoopClock:
    """Counts the seconds in which the client's event loop wasn't blocked.

    A period in which the loop is blocked counts for two seconds at most. Any thread may
    read the clock. All seconds count unless ``run()`` is running.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_and_held = math.inf, 0.0
        """When the loop's next turn is due, and its total delay so far. They are one
        value, since other threads read them."""
        self._seen = math.inf, 0.0
        """When a missed turn was due, and when a call noticed that it was missed."""

    def now(self) -> float:
        """Return the seconds since an arbitrary start."""
        due, held = self._due_and_held
        return min(self._clock.now(), due) - held

    def to_client_time(self, loop_time: float) -> float:
        """Return the client's time that is as long ago as ``loop_time``."""
        return self._clock.now() - (self.now() - loop_time)

    def blocked_since(self) -> float | None:
        """Return when the loop was first seen blocked, or None if it isn't blocked.

        The first call that sees it sets the time: after a suspend, threads wake up one
        by one, and the loop isn't blocked.
        """
        due, _ = self._due_and_held
        now = self._clock.now()
        if now <= due:
            return None
        if self._seen[0] != due:
            self._seen = due, now
        return self._seen[1]

    async def run(self) -> None:
        """Measure the loop's delay until cancelled."""
        held = 0.0
        while True:
            due = self._clock.now() + STEP_SECONDS
            self._due_and_held = due, held
            await asyncio.sleep(STEP_SECONDS)
            held += max(0.0, self._clock.now() - due)


TIMER_SECONDS = 0.05
TIMER_SHARE = 0.1
"""The timer's delay as a share of the time that user code has taken, so that code that
takes minutes costs few timers."""


class LoopLag:
    """Measures how late the event loop is, by a timer that runs while user code runs.

    ``busy_since`` returns when user code started, or None if it doesn't run. The timer
    isn't set again then.
    """

    def __init__(
        self, now: Callable[[], float], busy_since: Callable[[], float | None]
    ) -> None:
        self._now = now
        self._busy_since = busy_since
        self._due: float | None = None

    def start(self) -> None:
        """Set the timer unless it is set. Call this on the event loop."""
        if self._due is None:
            self._set(TIMER_SECONDS)

    def seconds(self) -> float:
        """Return how late the timer is, or 0 if it isn't set."""
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
