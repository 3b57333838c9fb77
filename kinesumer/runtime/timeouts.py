"""Time-outs that user code which holds the event loop can't bring about.

While user code blocks the loop, answers lie unread: that time says nothing about the
service which is asked. So a time-out needs the loop to come round several times.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

TURNS = 5
"""How often the loop comes round before a time-out, a fifth of its seconds apart."""
GRACE_SECONDS = 0.05
"""What has come by the last turn, which may be late, has so long to be handled."""


class Countdown:
    """Calls ``expired`` once when ``seconds`` have passed, and a short grace.

    However long the event loop was held, it has come round five times by then. Made on
    a running event loop.
    """

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds, self._expired = seconds, expired
        self.restart()
        self._timer = self._loop.call_later(seconds / TURNS, self._turn)

    def restart(self) -> None:
        """Count from the beginning."""
        self._end, self._turns = self._loop.time() + self._seconds, 0

    def cancel(self) -> None:
        """Never call ``expired``."""
        self._timer.cancel()

    def pause(self) -> None:
        """Count no time until ``resume()``."""
        self._timer.cancel()
        self._rest = self._end - self._loop.time()

    def resume(self) -> None:
        """Count on."""
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
    """Like ``asyncio.timeout()``, for what is asked of others: see ``Countdown``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        """Begin to count."""
        await self._timeout.__aenter__()
        self._countdown = Countdown(self._seconds, self._expire)
        return self

    def pause(self) -> None:
        """Count no time until ``resume()``."""
        self._countdown.pause()

    def resume(self) -> None:
        """Count on."""
        self._countdown.resume()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise TimeoutError if the block was cancelled since its time was over."""
        self._countdown.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def _expire(self) -> None:
        self._timeout.reschedule(asyncio.get_running_loop().time())
