"""Call functions in threads, of which the system may refuse some for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from kinesumer.errors import KinesumerError
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.refusals import is_refusal

T = TypeVar("T")

# The wait for a thread, a descriptor or memory that the system has refused. It only has
# to be long enough to cost little.
RETRY_SECONDS = 1.0
# Maximum number of threads for one kind of user code that isn't async. The watchdog
# ignores calls that wait for a thread.
MAX_THREADS = 128


class NoThreadError(KinesumerError):
    """No thread can start any more, since the interpreter ends."""


class NotCalledError(KinesumerError):
    """A function was not called, since its result is not needed any more."""


class Threads:
    """Calls functions in up to ``limit`` threads, which start on demand.

    While the system refuses a thread, a call waits for it, or for another thread of
    these.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(limit, name)
        self._name = name
        self._is_refused = False
        self._retry_at = 0.0  # by the event loop's clock

    async def call(
        self, function: Callable[[], T], is_over: Callable[[], bool] = bool
    ) -> T:
        """Call a function in a thread with the current context. Return its result.

        Raise its error. Raise NoThreadError if no thread can start any more, and
        NotCalledError if ``is_over`` becomes true before one has started.
        """
        answer: Future[T] = Future()
        context = copy_context()

        def run() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # the caller was cancelled
            try:
                answer.set_result(context.run(function))
            except StopIteration as error:  # a coroutine can't raise it
                answer.set_exception(_raised_from(error))
            except BaseException as error:
                answer.set_exception(error)

        result = asyncio.wrap_future(answer)
        try:
            self._submit(run)
            while self._is_refused and not (answer.running() or answer.done()):
                if is_over():
                    raise NotCalledError
                await asyncio.wait([result], timeout=RETRY_SECONDS)
                self._try_again()
            return await result
        finally:
            # If it waits for a thread, it must not begin any more.
            answer.cancel()

    def close(self) -> None:
        """End the threads. Those that are working end after their function."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _try_again(self) -> None:
        """Try to start a thread for the calls that wait, unless another call did."""
        if self._is_refused and asyncio.get_running_loop().time() >= self._retry_at:
            self._submit(_do_nothing)

    def _submit(self, run: Callable[[], None]) -> None:
        try:
            # The executor queues each call before it starts a thread. So even if the
            # start is refused, the next free thread makes the call.
            self._executor.submit(run)
        except (RuntimeError, MemoryError) as error:
            if not is_refusal(error):
                raise NoThreadError(
                    f"can't start a thread for {self._name} ({error}): keep the main "
                    "thread alive until the client has ended"
                ) from error
            self._retry_at = asyncio.get_running_loop().time() + RETRY_SECONDS
            if not self._is_refused:
                logger.warning("%s needs a thread, trying again: %s", self._name, error)
            self._is_refused = True
        else:
            if self._is_refused:
                logger.warning("threads of %s can start again", self._name)
            self._is_refused = False


def _do_nothing() -> None:
    pass


def _raised_from(error: StopIteration) -> RuntimeError:
    raised = RuntimeError("a function in a thread raised StopIteration")
    raised.__cause__ = error
    return raised
