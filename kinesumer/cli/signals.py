"""Signals: stop a command, or leave the group, then stop at once, then die."""

from __future__ import annotations

import asyncio
import math
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer import Kinesumer

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LEAVE_GRACE_SECONDS = 1.0
DUPLICATE_SECONDS = 0.2
"""`timeout` signals a process and its process group: both arrive, and count once."""


async def run_until_signal(task: asyncio.Task[None]) -> None:
    """Wait for a task, and cancel it on SIGINT or SIGTERM. Raises what it raised."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class SignalHandler:
    """Leaves the group on the first signal, and stops at once on the second.

    Create it in the task that consumes. The third signal kills the process.
    """

    def __init__(self, client: Kinesumer, say: Callable[[str], None]) -> None:
        self._client = client
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._consumer = asyncio.current_task()
        self._leaving: asyncio.Task[None] | None = None
        self._is_closed = False
        self._last_received: dict[int, float] = {}
        self.stopped_at_once = False
        """Whether ``stop_at_once()`` cancelled the consuming task."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        now = self._loop.time()
        before = self._last_received.get(number, -math.inf)
        self._last_received[number] = now
        if now - before < DUPLICATE_SECONDS:
            return
        if self._leaving is None:
            self._say("leaving: other clients take the shards over (again: stop now)")
            self._leaving = self._loop.create_task(self._leave())
            return
        # From now on a signal kills the process, even if user code blocks the loop.
        for number in SIGNALS:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self._say("stopping now (again: kill)")
        self.stop_at_once()

    async def _leave(self) -> None:
        try:
            await self._client.leave()
            # A client that hasn't begun to consume has no iteration that could end.
            await asyncio.sleep(LEAVE_GRACE_SECONDS)
        finally:
            if not self._is_closed:
                self.stop_at_once()

    def stop_at_once(self) -> None:
        """Cancel the consuming task: it stores positions and releases its shards."""
        if self._consumer is not None and not self._consumer.done():
            self.stopped_at_once = True
            self._consumer.cancel()

    def close(self) -> None:
        """Stop leaving, since the iteration has ended and the client closes."""
        self._is_closed = True
        if self._leaving is not None:
            self._leaving.cancel()
