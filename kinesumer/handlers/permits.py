"""Lets the event loop's other tasks run, however many handlers never await."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from kinesumer.core.loop_share import yield_seconds
from kinesumer.handlers.shard_queue import ShardStopped
from kinesumer.runtime.clock import LoopLag

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.ports import Clock

PAUSE_SECONDS = 0.05
"""How often a lapsed lease is checked."""
YIELD_EVERY_SECONDS = 0.05
YIELD_STEPS = 10
"""Steps of the loop each time: enough to take in an answer and send what follows.
After handlers have held the loop for long, a slice of real time comes on top."""


class LoopYielder:
    """A pause that all queues take: after it they go on one by one.

    Were each to pause by itself, the loop would be held up by as many handlers as there
    are shards in each of its steps.
    """

    def __init__(
        self, clock: Clock, busy_since: Callable[[], float | None] = lambda: None
    ) -> None:
        """``busy_since`` returns since when a handler is at work; None if none is."""
        self.due = 0.0
        """User code begins nothing after this, before a pause."""
        self._clock = clock
        self._lag = LoopLag(clock.now, busy_since)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pausing: asyncio.Task[None] | None = None

    async def wait_turn(self) -> None:
        """Wait for one's turn after the pause, if one is due."""
        if self._clock.now() < self.due:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        if self._pausing is None or self._pausing.done():
            self._pausing = loop.create_task(self._pause())
        await future

    async def _pause(self) -> None:
        while self._waiting:
            seconds = yield_seconds(self._lag.seconds())
            for _ in range(YIELD_STEPS):
                await asyncio.sleep(0)
            if seconds:
                await asyncio.sleep(seconds)
            self._lag.start()
            self.due = self._clock.now() + YIELD_EVERY_SECONDS
            while self._waiting and self._clock.now() < self.due:
                future = self._waiting.popleft()
                if not future.done():
                    future.set_result(None)
                    await asyncio.sleep(0)  # it runs until it awaits, or is to pause


class Gate:
    """Lets user code begin with something when that is permitted."""

    def __init__(self, clock: Clock, yielder: LoopYielder) -> None:
        self._clock, self._yielder = clock, yielder

    async def __call__(self, item: WorkItem) -> None:
        """Wait for one's turn, and while the lease has lapsed. Raises ShardStopped."""
        queue, lease = item.queue, item.queue.owned.lease
        while True:
            await self._yielder.wait_turn()
            if queue.is_over:
                raise ShardStopped
            if lease.permits(self._clock.now()):
                return
            await queue.sleep(PAUSE_SECONDS)
