"""Runs an event loop on its own thread, for methods that Spark calls synchronously."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import cache
from typing import TypeVar

from kinesumer.config import MAX_CONNECTIONS
from kinesumer.errors import (
    ExpiredIteratorError,
    SourceUnavailableError,
    ThreadRefusedError,
)
from kinesumer.runtime.refusals import start_thread
from kinesumer.runtime.retries import Retries
from kinesumer.runtime.tasks import gather_or_cancel

T = TypeVar("T")

# The query fails if Kinesis doesn't answer for this long.
MAX_OUTAGE_SECONDS = 120.0
PLAN_RETRIES = Retries(
    (SourceUnavailableError, ExpiredIteratorError),
    max_seconds=MAX_OUTAGE_SECONDS,
    waits_for_credentials=True,
)


class EventLoopThread:
    """An event loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        try:
            start_thread(self.loop.run_forever, "kinesumer-spark")
        except ThreadRefusedError:
            self.loop.close()
            raise

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop; return its result or raise its exception."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


def event_loop_thread() -> EventLoopThread:
    """Return the loop of this process. The first call starts it.

    Spark forks its workers, and threads don't survive a fork.
    """
    return _event_loop_thread(os.getpid())


@cache
def _event_loop_thread(_process: int) -> EventLoopThread:
    return EventLoopThread()


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Await ``work`` for all items, as many as connections. Stop at an error."""
    waiting = list(items)
    queue = iter(waiting)  # shared: while one worker is busy, the others take the rest

    async def worker() -> None:
        for item in queue:
            await work(item)

    await gather_or_cancel(worker() for _ in waiting[:MAX_CONNECTIONS])
