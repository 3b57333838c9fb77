"""Start threads, and call functions in them, although the system refuses some.

A refusal of a thread, a file descriptor or memory is temporary: other threads and
processes of the machine end, and release what they have. So what was refused is tried
again.
"""

from __future__ import annotations

import _thread
import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

from kinesumer.errors import (
    ConfigurationError,
    KinesumerError,
    ThreadRefusedError,
    TransientError,
)
from kinesumer.runtime.failure_log import logger

# The wait for a thread, a descriptor or memory that the system has refused. It only has
# to be long enough to cost little.
RETRY_SECONDS = 1.0
# Maximum number of threads for one kind of user code that isn't async. The watchdog
# ignores calls that wait for a thread. Chosen: more shards than a client usually owns.
MAX_THREADS = 128
# What the system returns if it has no more descriptors, processes, threads or memory.
ERRNOS = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS)
)
# Libraries that can replace the system's threads by green threads.
GREEN = ("gevent", "eventlet")
# CPython's text, in a plain RuntimeError.
NO_THREAD = "can't start new thread"
T = TypeVar("T")


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
            self._submit(lambda: None)

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


def _raised_from(error: StopIteration) -> RuntimeError:
    raised = RuntimeError("a function in a thread raised StopIteration")
    raised.__cause__ = error
    return raised


def is_refusal(error: BaseException) -> bool:
    """Return whether an error or its cause is that the system refuses a resource."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ThreadRefusedError | MemoryError):
            return True
        if isinstance(cause, OSError) and cause.errno in ERRNOS:
            return True
        if isinstance(cause, RuntimeError) and str(cause) == NO_THREAD:
            return True
        cause = cause.__cause__
    return False


@contextmanager
def refusal_errors(what: str, unavailable: type[TransientError]) -> Iterator[None]:
    """Raise ``unavailable`` if the system refuses the block a resource."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not is_refusal(error):
            raise
        raise unavailable(
            f"the system refuses what {what} needs: {_text(error)}"
        ) from error


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread, and return it. Raise ThreadRefusedError.

    Raise ConfigurationError if threads are patched.
    """
    require_system_threads()
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise ThreadRefusedError(
            f"the system refuses the thread {name} ({_text(error)}): raise its limits "
            "of threads, processes and memory"
        ) from error
    return thread


def require_system_threads() -> None:
    """Raise ConfigurationError if a library has replaced the system's threads.

    All green threads share one thread of the system, which runs one event loop at most.
    """
    library = _thread.start_new_thread.__module__.partition(".")[0]
    if library in GREEN:  # a debugger replaces the function, too, but not the threads
        raise ConfigurationError(
            f"{library} has patched threads, but kinesumer runs event loops in threads "
            "of the system: leave threads out of the patches, for example by "
            "gevent's monkey.patch_all(thread=False)"
        )


def _text(error: Exception) -> str:
    return str(error) or "out of memory"
