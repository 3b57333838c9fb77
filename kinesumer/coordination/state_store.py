"""Call the state store on a thread of its own, and at a limited rate.

The thread has its own event loop, which makes all calls. User code may block the
client's event loop. Calls on that loop could time out although their answers have
arrived.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, ParamSpec, TypeVar

from kinesumer.core.backoff import CHECK_SECONDS
from kinesumer.core.congestion import WriteRate
from kinesumer.errors import KinesumerError, StoreThrottledError
from kinesumer.ports import Clock, StateStore, Write, WriteResult
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import is_refusal, start_thread

# Maximum concurrent writes of one client. At 10 ms a write, this is three times
# UNITS_PER_SECOND, so that the rate and not this number limits the writes.
PARALLEL_WRITES = 32
T = TypeVar("T")
P = ParamSpec("P")


class StoreThreadEndedError(KinesumerError):
    """The thread has ended, so calls get no answer."""

    def __init__(self) -> None:
        super().__init__(
            "the thread that makes the calls to the state store has ended; "
            "start a new client"
        )


class StoreThread:
    """Opens a state store on a thread and keeps it open until stopped."""

    def __init__(
        self, open_store: Callable[[], AbstractAsyncContextManager[StateStore]]
    ) -> None:
        self._open_store = open_store
        self._opened: Future[None] = Future()
        self.store: StateStore  # the store, for use on the thread's own event loop
        self._loop: asyncio.AbstractEventLoop
        self._main: asyncio.Task[None] | None = None
        # The open calls, and the coroutine of each.
        self._calls: dict[Future[Any], Coroutine[Any, Any, Any]] = {}
        self._ended = False
        self._thread: threading.Thread | None = None

    async def start(self) -> StateStore:
        """Open the store; return a store for use on other event loops.

        Raises ThreadRefusedError, and any error of opening the store.
        """
        self._thread = start_thread(self._run, "kinesumer-state-store")
        # Shield the future, which the thread sets even if the caller is cancelled.
        await asyncio.shield(asyncio.wrap_future(self._opened))
        return _RemoteStore(self)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the thread; cancelling this call cancels the coroutine.

        Raises the coroutine's errors, and StoreThreadEndedError.
        """
        try:
            call = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the thread's loop is closed
            work.close()
            raise StoreThreadEndedError from None
        self._calls[call] = work
        call.add_done_callback(self._forget)
        if self._ended:
            self._end_calls()
        try:
            return await asyncio.wrap_future(call)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise StoreThreadEndedError from None

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Call a function on the thread soon, unless the thread has ended."""
        with suppress(RuntimeError):  # the thread's loop is closed
            self._loop.call_soon_threadsafe(callback, *arguments)

    async def stop(self) -> None:
        """Close the store and end the thread, cancelling open calls."""
        is_cancelled = False
        while self._thread is not None and self._thread.is_alive():
            # A thread that has just started has no task to cancel yet.
            if not is_cancelled and self._main is not None:
                is_cancelled = True
                self.call_soon(self._main.cancel)
            # Most often, the thread ends within milliseconds.
            await asyncio.sleep(0.005)

    # --- on the thread --------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.get_loop()  # needs descriptors, which the system may refuse
                runner.run(self._serve())
        except asyncio.CancelledError:
            pass  # stop() has cancelled _serve()
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            elif not is_refusal(error):
                raise
            else:  # asyncio starts a thread to end those of its executor
                logger.warning("asyncio can't end its threads: %s", error)
        finally:
            self._ended = True
            self._end_calls()
            if not self._opened.done():
                self._opened.set_exception(StoreThreadEndedError())

    def _end_calls(self) -> None:
        """Cancel the open calls, which no event loop is left to answer."""
        for call, work in list(self._calls.items()):
            work.close()  # the loop may have ended before it began the call
            call.cancel()

    def _forget(self, call: Future[Any]) -> None:
        if call.cancelled():  # the thread may not have begun it; it does so before this
            self.call_soon(self._calls.pop, call, None)
        else:
            self._calls.pop(call, None)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        try:
            async with self._open_store() as self.store:
                self._opened.set_result(None)
                await self._loop.create_future()
        except Exception as error:
            if self._opened.done():
                raise
            self._opened.set_exception(error)


class _RemoteStore:
    """A ``ports.StateStore`` that passes calls from other event loops to the thread."""

    def __init__(self, thread: StoreThread) -> None:
        def on_thread(
            method: Callable[P, Coroutine[Any, Any, T]],
        ) -> Callable[P, Coroutine[Any, Any, T]]:
            # A lambda would create the coroutine even if a cancelled task never begins.
            async def call(*args: P.args, **kwargs: P.kwargs) -> T:
                return await thread.call(method(*args, **kwargs))

            return call

        store = thread.store
        self.get, self.query = on_thread(store.get), on_thread(store.query)
        self.write, self.verify = on_thread(store.write), on_thread(store.verify)
        self.query_not_updated_since = on_thread(store.query_not_updated_since)


class PacedStore:
    """A ``ports.StateStore`` with a limited write rate.

    Throttled writes reduce the rate. No write is sent while ``must_wait()`` is true: it
    is after a throttled heartbeat, whose retry comes first. Reads aren't limited.
    """

    def __init__(
        self,
        store: StateStore,
        clock: Clock,
        random: random.Random,
        must_wait: Callable[[], bool] = bool,
    ) -> None:
        self.rate: WriteRate = WriteRate(clock.now())
        self.get, self.query, self.verify = store.get, store.query, store.verify
        self.query_not_updated_since = store.query_not_updated_since
        self._store = store
        self._clock = clock
        self._random = random
        self._must_wait = must_wait
        self._slots = asyncio.Semaphore(PARALLEL_WRITES)
        self._turn = asyncio.Lock()

    async def write(self, write: Write) -> WriteResult:
        """Apply a conditional write when the rate permits: see ``ports.StateStore``."""
        async with self._slots:
            sent_at = await self._wait()
            try:
                written = await self._store.write(write)
            except StoreThrottledError:
                jitter = self._random.random()
                self.rate.refused(sent_at, self._clock.now(), jitter)
                raise
            self.rate.accepted(self._clock.now())
            return written

    async def _wait(self) -> float:
        """Wait until a write may be sent; return the time at the end of the wait."""
        async with self._turn:
            while True:
                if self._must_wait():
                    await asyncio.sleep(CHECK_SECONDS)
                    continue
                now = self._clock.now()
                wait = self.rate.wait_seconds(now)
                if not wait:
                    return now
                await asyncio.sleep(wait)
