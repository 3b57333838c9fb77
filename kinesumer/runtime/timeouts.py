"""Time-outs that don't expire only because user code has blocked the event loop.

While user code blocks the loop, responses that have arrived remain unread. So a request
times out only after the loop has also run several turns, in which it can read the
responses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

TURNS = 5  # turns of the loop before a time-out, evenly spaced over its seconds
# Time to handle received responses after the last turn, which may be late.
GRACE_SECONDS = 0.05


class Countdown:
    """Calls ``expired`` once, after ``seconds`` and a short grace period.

    The event loop runs five turns before the call, even if user code blocked the loop.
    Create the countdown on a running event loop.
    """

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds, self._expired = seconds, expired
        self.restart()
        self._timer = self._loop.call_later(seconds / TURNS, self._turn)

    def restart(self) -> None:
        """Start the countdown again from the beginning."""
        self._end, self._turns = self._loop.time() + self._seconds, 0

    def cancel(self) -> None:
        """End the countdown without calling ``expired``."""
        self._timer.cancel()

    def pause(self) -> None:
        """Stop the countdown until ``resume()``."""
        self._timer.cancel()
        self._rest = self._end - self._loop.time()

    def resume(self) -> None:
        """Continue after ``pause()``."""
        self._end = self._loop.time() + self._rest
        delay = min(self._seconds / TURNS, max(self._rest, GRACE_SECONDS))
        self._timer = self._loop.call_later(delay, self._turn)

    def _turn(self) -> None:
        self._turns += 1
        rest = self._end - self._loop.time()
        if self._turns > TURNS and rest <= 0:
            self._expired()
            return
        delay = self._seconds / TURNS
        if self._turns >= TURNS:
            delay = max(rest, GRACE_SECONDS)
        self._timer = self._loop.call_later(delay, self._turn)


class timeout:
    """Limit a request's time like ``asyncio.timeout()``, with a ``Countdown``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        """Start the countdown."""
        await self._timeout.__aenter__()
        self._countdown = Countdown(self._seconds, self._expire)
        return self

    def pause(self) -> None:
        """Stop the countdown until ``resume()``."""
        self._countdown.pause()

    def resume(self) -> None:
        """Continue after ``pause()``."""
        self._countdown.resume()

    def restart(self) -> None:
        """Start the countdown again from the beginning."""
        self._countdown.restart()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise TimeoutError if the time-out has cancelled the block."""
        self._countdown.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _expire(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())
