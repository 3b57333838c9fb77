"""How user code is called: with each record or a batch, in the loop or in a thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol

from kinesumer.errors import ConfigurationError, KinesumerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from kinesumer.handlers.permits import Breath
    from kinesumer.handlers.signature import Handler
    from kinesumer.handlers.work_item import Stint
    from kinesumer.ports import Clock


class NotAwaitedError(ConfigurationError):
    """A plain function returned something to await, which nobody does."""


class NoThreadError(KinesumerError):
    """A plain function couldn't be called: there is no thread to be had for it."""


class Caller(Protocol):
    """Gives records to user code."""

    async def __call__(self, stint: Stint, stop: int) -> None:
        """Give it those up to ``stop`` that aren't done, and count them as done.

        It may leave some, if it isn't permitted to go on or if it is time for a pause.
        Raises what user code raised.
        """


class EachRecord:
    """Awaits an async function for each record."""

    def __init__(self, handler: Handler, clock: Clock, breath: Breath) -> None:
        self._handler, self._clock, self._breath = handler.call, clock, breath

    async def __call__(self, stint: Stint, stop: int) -> None:
        """Go on until the lease lapses, the shard is given up, or a pause is due."""
        now, handler, breath = self._clock.now, self._handler, self._breath
        lane, lease = stint.lane, stint.lane.holding.lease
        began = now()
        for record in stint.records[stint.done : stop]:
            moment = now()
            if moment >= lease.deadline or moment >= breath.due or lane.is_over:
                break
            stint.since = moment
            await handler(record)
            stint.done += 1
        stint.seconds += now() - began


class WholeBatch:
    """Awaits an async function for a batch."""

    def __init__(self, handler: Handler, clock: Clock) -> None:
        self._handler, self._now = handler.call, clock.now

    async def __call__(self, stint: Stint, stop: int) -> None:
        """Call it once."""
        stint.since = began = self._now()
        await self._handler(stint.part(stop))
        stint.done = stop
        stint.seconds += self._now() - began


class EachRecordInThread:
    """Calls a plain function for each record: one trip to a thread for all of them."""

    def __init__(self, handler: Handler, clock: Clock, threads: Executor) -> None:
        self._handler, self._now, self._threads = handler.call, clock.now, threads

    async def __call__(self, stint: Stint, stop: int) -> None:
        """Go on until the lease lapses or the shard is given up."""
        await in_thread(self._threads, self._each, stint, stop)

    def _each(self, stint: Stint, stop: int) -> None:
        now, handler = self._now, self._handler
        lane, lease = stint.lane, stint.lane.holding.lease
        began = now()
        for record in stint.records[stint.done : stop]:
            moment = now()
            if moment >= lease.deadline or lane.is_over:
                break
            stint.since = moment
            refuse_awaitable(handler(record))
            stint.done += 1
        stint.seconds += now() - began


class WholeBatchInThread:
    """Calls a plain function for a batch, in a thread."""

    def __init__(self, handler: Handler, clock: Clock, threads: Executor) -> None:
        self._handler, self._now, self._threads = handler.call, clock.now, threads

    async def __call__(self, stint: Stint, stop: int) -> None:
        """Call it once, if the lease still permits that when there is a thread."""
        await in_thread(self._threads, self._whole, stint, stop)

    def _whole(self, stint: Stint, stop: int) -> None:
        stint.since = moment = self._now()
        if stint.lane.holding.lease.permits(moment) and not stint.lane.is_over:
            refuse_awaitable(self._handler(stint.part(stop)))
            stint.done = stop
            stint.seconds += self._now() - moment


async def in_thread(
    threads: Executor, work: Callable[[Stint, int], None], stint: Stint, stop: int
) -> None:
    """Run work in a thread, in the context at hand, and raise what it raised."""

    def run() -> BaseException | None:
        stint.thread = threading.get_ident()
        try:
            work(stint, stop)
        except BaseException as error:  # a future wouldn't take a StopIteration
            return error
        return None

    loop = asyncio.get_running_loop()
    try:
        error = await loop.run_in_executor(threads, copy_context().run, run)
    except RuntimeError as refused:  # user code's errors are returned
        raise NoThreadError(
            f"the handler is a plain function, and no thread can be had to call it "
            f"({refused}): does the system limit threads, or has the program's main "
            "thread ended?"
        ) from refused
    if error is not None:
        raise error


def refuse_awaitable(found: Any) -> None:
    """Raise NotAwaitedError for what a coroutine function in disguise returned."""
    if found is None or not inspect.isawaitable(found):
        return
    if inspect.iscoroutine(found):
        found.close()
    raise NotAwaitedError(
        "the handler is a plain function, but returned something to await, so nothing "
        "was done: write it with `async def`"
    )


def caller_for(
    handler: Handler, clock: Clock, breath: Breath, threads: Executor
) -> Caller:
    """Return how a handler is called."""
    if handler.is_async:
        if handler.takes_batches:
            return WholeBatch(handler, clock)
        return EachRecord(handler, clock, breath)
    if handler.takes_batches:
        return WholeBatchInThread(handler, clock, threads)
    return EachRecordInThread(handler, clock, threads)
