"""An event loop on its own thread, for code that Spark calls synchronously."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from kinesumer.errors import ExpiredIteratorError, SourceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable
    from concurrent.futures import Future

    from kinesumer.ports import Clock


T = TypeVar("T")


class EventLoopThread:
    """An event loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="kinesumer-spark", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop; return its result or raise its exception."""
        return self.submit(work).result()

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function on the loop; return its result or raise its exception."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start a coroutine on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)


def event_loop_thread() -> EventLoopThread:
    """Return the loop of this process. The first call starts it.

    Spark forks its workers, and threads don't survive a fork: each process has its own.
    """
    return _event_loop_thread(os.getpid())


@cache
def _event_loop_thread(_process: int) -> EventLoopThread:
    return EventLoopThread()


PARALLEL = 256


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Await ``work`` for all items, up to PARALLEL at once. Stop at the first error."""
    waiting = list(items)
    queue = iter(waiting)

    async def worker() -> None:
        for item in queue:
            await work(item)

    tasks = [asyncio.ensure_future(worker()) for _ in waiting[:PARALLEL]]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


MAX_OUTAGE_SECONDS = 120.0
"""The query fails if Kinesis doesn't answer for this long."""


FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0


async def with_retries(call: Callable[[], Awaitable[T]], clock: Clock) -> T:
    """Return the result of a call, with retries for MAX_OUTAGE_SECONDS."""
    deadline = clock.now() + MAX_OUTAGE_SECONDS
    wait = FIRST_WAIT
    while True:
        try:
            return await call()
        except (SourceUnavailableError, ExpiredIteratorError):
            if clock.now() + wait > deadline:
                raise
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
