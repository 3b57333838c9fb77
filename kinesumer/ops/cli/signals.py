"""Handle SIGINT and SIGTERM: end a command, or first let its client leave the group."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from kinesumer import Kinesumer
from kinesumer.runtime.stop_signals import SIGNALS, StopSignals

LEAVE_GRACE_SECONDS = 1.0


async def run_until_signal(task: asyncio.Task[None]) -> None:
    """Wait for a task. Cancel it on SIGINT or SIGTERM. Raises the task's error."""
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, task.cancel)
    # wait() doesn't raise if the task was cancelled, but awaiting the task would.
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


class SignalHandler(StopSignals):
    """Leaves the group on the first signal, and stops at once on the second.

    Use it as a context manager in the task that consumes. The third signal kills the
    process.
    """

    def __init__(self, client: Kinesumer, say: Callable[[str], None]) -> None:
        self._client = client
        self._say = say
        self._consumer = asyncio.current_task()
        self._leaving: asyncio.Task[None] | None = None
        self._is_closed = False
        # Whether stop_at_once() has cancelled the consuming task.
        self.stopped_at_once: bool = False
        loop = asyncio.get_running_loop()
        super().__init__(
            lambda: loop.call_soon_threadsafe(self._begin_to_leave),
            lambda: loop.call_soon_threadsafe(self._stop_now),
        )

    def _begin_to_leave(self) -> None:
        self._say("leaving: other clients take the shards over (again: stop now)")
        self._leaving = asyncio.create_task(self._leave())

    def _stop_now(self) -> None:
        # From now on a signal kills the process, even if user code blocks the loop.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        self._say("stopping now (again: kill)")
        self.stop_at_once()

    async def _leave(self) -> None:
        try:
            await self._client.leave()
            # Leaving ends the iteration, and then close() cancels this wait. A client
            # that hasn't begun to consume has no iteration, so stop it after the wait.
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
        """Don't stop the consuming task any more, since its iteration has ended."""
        self._is_closed = True
        if self._leaving is not None:
            self._leaving.cancel()
