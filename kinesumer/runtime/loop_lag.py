"""Measures for how long an event loop has run nothing but one callback."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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
