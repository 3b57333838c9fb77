"""Signals of a consuming process: leave, then stop at once, then die."""

from __future__ import annotations

import asyncio
import math
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer import Kinesumer

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LEFT_SECONDS = 1.0
SAME_SECONDS = 0.2
"""The same signal to a process and to its group, as `timeout` sends it, is one."""


class Stopping:
    """Makes the first signal leave without a gap, and the second stop at once.

    To be made in the task that consumes. The third signal kills the process.
    """

    def __init__(self, client: Kinesumer, say: Callable[[str], None]) -> None:
        self._client = client
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._consumer = asyncio.current_task()
        self._leaving: asyncio.Task[None] | None = None
        self._is_done = False
        self._signals: dict[int, float] = {}
        """When each was last received."""
        self.at_once = False
        """Set when consuming was cancelled here, which is no error."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._signalled, number)

    def _signalled(self, number: int) -> None:
        now = self._loop.time()
        before, self._signals[number] = self._signals.get(number, -math.inf), now
        if now - before < SAME_SECONDS:
            return
        if self._leaving is None:
            self._say("leaving: others take the shards over (again: stop at once)")
            self._leaving = self._loop.create_task(self._leave())
            return
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._say("stopping at once (again: kill)")
        self.stop_at_once()

    async def _leave(self) -> None:
        try:
            await self._client.leave()
            # Who hasn't come as far as consuming has nothing that ends by leaving.
            await asyncio.sleep(LEFT_SECONDS)
        finally:
            if not self._is_done:
                self.stop_at_once()

    def stop_at_once(self) -> None:
        """Cancel the task that consumes: positions are stored, shards given up."""
        if self._consumer is not None and not self._consumer.done():
            self.at_once = True
            self._consumer.cancel()

    def done(self) -> None:
        """Leave no more: the iteration has ended, and the client closes."""
        self._is_done = True
        if self._leaving is not None:
            self._leaving.cancel()
