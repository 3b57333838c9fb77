"""Tasks and awaited calls: groups of tasks, time-outs and retries.

A time-out doesn't expire only because user code has blocked the event loop. While user
code blocks the loop, responses that have arrived remain unread. So a request times out
only after the loop has also run several turns, in which it can read the responses.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, TypeVarTuple

from kinesumer.core.backoff import CALL_BACKOFF, Backoff
from kinesumer.errors import SourceUnavailableError, TransientError

# Turns of the loop before a time-out, evenly spaced over its seconds. Chosen: a few
# turns suffice to receive an answer that has arrived.
TURNS = 5
# Time to handle received responses after the last turn, which may be late. Chosen:
# decoding a full page takes less.
GRACE_SECONDS = 0.05
T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class FailFastTaskGroup(asyncio.TaskGroup):
    """A task group with a flag that is set when a task fails, or the group ends."""

    def __init__(self) -> None:
        super().__init__()
        # True if a task has failed and the group is cancelling the others, or if the
        # group has ended.
        self.is_ending: bool = False

    async def __aexit__(self, *error: Any) -> None:
        try:
            await super().__aexit__(*error)
        finally:
            self.is_ending = True

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        """Start a task. Raise RuntimeError if the group is ending."""
        task = super().create_task(coro, **options)
        # This callback runs right after the group's own one, which cancels the other
        # tasks.
        task.add_done_callback(self._note_failure)
        return task

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.is_ending = True


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all calls. The first error cancels the others.

    ``asyncio.gather()`` would leave the other calls running.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


async def within(seconds: float, done: Awaitable[object]) -> bool:
    """Wait for ``done``. Cancel it and return False after ``seconds``."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await done
    except TimeoutError:
        return False
    return True


async def wait_and_clear(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set or the time is over, and clear the event."""
    await within(seconds, event.wait())
    event.clear()


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their ends. Their errors are not raised."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def wait_for_start(started: asyncio.Event, task: asyncio.Task[Any]) -> None:
    """Wait until an event is set, or until the task that would set it ends."""
    waiter = asyncio.create_task(started.wait())
    try:
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiter.cancel()


async def raise_in_task(error: BaseException) -> None:
    """Raise an error, so that a task group cancels its other tasks."""
    raise error


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in nested exception groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Countdown:
    """Calls ``expired`` once, after ``seconds`` and a short grace period.

    The event loop runs five turns before the call, even if user code blocked the loop.
    Create the countdown on a running event loop.
    """

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds, self._expired = seconds, expired
        self.restart()
        self._timer = self._loop.call_later(seconds / TURNS, self._turn)

    def restart(self) -> None:
        """Start the countdown again from the beginning."""
        self._end, self._turns = self._loop.time() + self._seconds, 0

    def cancel(self) -> None:
        """End the countdown without calling ``expired``."""
        self._timer.cancel()

    def pause(self) -> None:
        """Stop the countdown until ``resume()``."""
        self._timer.cancel()
        self._rest = self._end - self._loop.time()

    def resume(self) -> None:
        """Continue after ``pause()``."""
        self._end = self._loop.time() + self._rest
        delay = min(self._seconds / TURNS, max(self._rest, GRACE_SECONDS))
        self._timer = self._loop.call_later(delay, self._turn)

    def _turn(self) -> None:
        self._turns += 1
        rest = self._end - self._loop.time()
        if self._turns > TURNS and rest <= 0:
            self._expired()
            return
        delay = self._seconds / TURNS
        if self._turns >= TURNS:
            delay = max(rest, GRACE_SECONDS)
        self._timer = self._loop.call_later(delay, self._turn)


class timeout:
    """Limits a request's time like ``asyncio.timeout()``, with a ``Countdown``."""

    # Each request has one, and a class takes 3 µs less than a generator.

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> Countdown:
        """Start the countdown, and return it."""
        await self._limit.__aenter__()
        self._countdown = Countdown(self._seconds, self._expire)
        return self._countdown

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Raise TimeoutError if the countdown has cancelled the block."""
        self._countdown.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _expire(self) -> None:
        self._limit.reschedule(asyncio.get_running_loop().time())


class Retries(NamedTuple):
    """The errors after which a call is repeated, and the limits of the repetition.

    With ``waits_for_credentials``, the attempts and the time without valid credentials
    don't count.
    """

    errors: tuple[type[TransientError], ...] = (SourceUnavailableError,)
    max_attempts: float = math.inf
    max_seconds: float = math.inf
    backoff: Backoff = CALL_BACKOFF
    waits_for_credentials: bool = False

    async def call(
        self,
        request: Callable[[*Arguments], Awaitable[T]],
        *args: *Arguments,
        on_failure: Callable[[TransientError], object] | None = None,
    ) -> T:
        """Return the result of ``request``. Raise its last error at one of the limits.

        ``on_failure`` receives the error of each failed attempt.
        """
        now = asyncio.get_running_loop().time
        began, failures = now(), 0
        while True:
            try:
                return await request(*args)
            except self.errors as error:
                if on_failure is not None:
                    on_failure(error)
                if self.waits_for_credentials and error.lacks_credentials:
                    began, wait = now(), self.backoff.longest_seconds
                else:
                    failures += 1
                    wait = self.backoff.wait_seconds(failures, random.random())
                    elapsed = now() + wait - began
                    if failures >= self.max_attempts or elapsed > self.max_seconds:
                        raise
            await asyncio.sleep(wait)


# For calls that a person or a program waits for: some ten seconds.
CALL_RETRIES = Retries(max_attempts=10)
