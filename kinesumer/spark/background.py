"""One event loop on a thread of its own, for code that Spark calls synchronously."""

from __future__ import annotations

import asyncio
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

T = TypeVar("T")


class Background:
    """An event loop that runs until the process ends."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="kinesumer-spark", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine there and return what it returns or raises."""
        return self.submit(work).result()

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function there and return what it returns or raises."""

        async def work() -> T:
            return function(*arguments)

        return self.run(work())

    def submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        """Start a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)


def background() -> Background:
    """Return this process's loop, started when first asked for.

    Spark forks its workers: a thread isn't there after a fork, so each process has one.
    """
    return _background(os.getpid())


@cache
def _background(_process: int) -> Background:
    return Background()
