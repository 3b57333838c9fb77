"""Call handlers: with each record or a batch, in the event loop or in a thread."""

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

    from kinesumer.handlers.permits import LoopYielder
    from kinesumer.handlers.shard_queue import WorkItem
    from kinesumer.handlers.signature import Handler
    from kinesumer.ports import Clock


class NotAwaitedError(ConfigurationError):
    """A plain function returned an awaitable."""


class NoThreadError(KinesumerError):
    """No thread could be started for a plain function."""


class Invoker(Protocol):
    """Gives records to user code."""

    async def __call__(self, item: WorkItem, stop: int) -> None:
        """Handle the records up to ``stop`` that aren't done, and count them as done.

        It may leave some if the lease has lapsed or a pause is due. Raises what user
        code raised.
        """


class EachRecord:
    """Awaits an async function for each record."""

    def __init__(self, handler: Handler, clock: Clock, yielder: LoopYielder) -> None:
        self._handler, self._clock, self._yielder = handler.call, clock, yielder

    async def __call__(self, item: WorkItem, stop: int) -> None:
        """Go on until the lease lapses, the shard is given up, or a pause is due."""
        now, handler, yielder = self._clock.now, self._handler, self._yielder
        queue, lease = item.queue, item.queue.owned.lease
        began = now()
        for record in item.records[item.done : stop]:
            moment = now()
            if moment >= lease.deadline or moment >= yielder.due or queue.is_over:
                break
            item.busy_since = moment
            await handler(record)
            item.done += 1
        item.seconds += now() - began


class WholeBatch:
    """Awaits an async function for a batch."""

    def __init__(self, handler: Handler, clock: Clock) -> None:
        self._handler, self._now = handler.call, clock.now

    async def __call__(self, item: WorkItem, stop: int) -> None:
        """Call it once."""
        item.busy_since = began = self._now()
        await self._handler(item.batch_up_to(stop))
        item.done = stop
        item.seconds += self._now() - began


class EachRecordInThread:
    """Calls a plain function for each record: one trip to a thread for all of them."""

    def __init__(self, handler: Handler, clock: Clock, threads: Executor) -> None:
        self._handler, self._now, self._threads = handler.call, clock.now, threads

    async def __call__(self, item: WorkItem, stop: int) -> None:
        """Go on until the lease lapses or the shard is given up."""
        await in_thread(self._threads, self._each, item, stop)

    def _each(self, item: WorkItem, stop: int) -> None:
        now, handler = self._now, self._handler
        queue, lease = item.queue, item.queue.owned.lease
        began = now()
        for record in item.records[item.done : stop]:
            moment = now()
            if moment >= lease.deadline or queue.is_over:
                break
            item.busy_since = moment
            refuse_awaitable(handler(record))
            item.done += 1
        item.seconds += now() - began


class WholeBatchInThread:
    """Calls a plain function for a batch, in a thread."""

    def __init__(self, handler: Handler, clock: Clock, threads: Executor) -> None:
        self._handler, self._now, self._threads = handler.call, clock.now, threads

    async def __call__(self, item: WorkItem, stop: int) -> None:
        """Call it once, if the lease still permits that when there is a thread."""
        await in_thread(self._threads, self._whole, item, stop)

    def _whole(self, item: WorkItem, stop: int) -> None:
        item.busy_since = moment = self._now()
        if item.queue.owned.lease.permits(moment) and not item.queue.is_over:
            refuse_awaitable(self._handler(item.batch_up_to(stop)))
            item.done = stop
            item.seconds += self._now() - moment


async def in_thread(
    threads: Executor, work: Callable[[WorkItem, int], None], item: WorkItem, stop: int
) -> None:
    """Run work in a thread, in the context at hand, and raise what it raised."""

    def run() -> BaseException | None:
        item.thread = threading.get_ident()
        try:
            work(item, stop)
        except BaseException as error:  # a future wouldn't take a StopIteration
            return error
        return None

    loop = asyncio.get_running_loop()
    try:
        error = await loop.run_in_executor(threads, copy_context().run, run)
    except RuntimeError as refused:  # user code's errors are returned
        raise NoThreadError(
            f"can't start a thread for the handler, a plain function ({refused}): "
            "raise the system's limit of threads, and keep the main thread alive"
        ) from refused
    if error is not None:
        raise error


def refuse_awaitable(found: Any) -> None:
    """Raise NotAwaitedError if a plain function returned an awaitable."""
    if found is None or not inspect.isawaitable(found):
        return
    if inspect.iscoroutine(found):
        found.close()
    raise NotAwaitedError(
        "the handler is a plain function that returned an awaitable, so nothing was "
        "done: write it with `async def`"
    )


def invoker_for(
    handler: Handler, clock: Clock, yielder: LoopYielder, threads: Executor
) -> Invoker:
    """Return how a handler is called."""
    if handler.is_async:
        if handler.takes_batches:
            return WholeBatch(handler, clock)
        return EachRecord(handler, clock, yielder)
    if handler.takes_batches:
        return WholeBatchInThread(handler, clock, threads)
    return EachRecordInThread(handler, clock, threads)
