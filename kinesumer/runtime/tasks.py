"""A task group that ends at the first failure, and other helpers for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class FailFastTaskGroup(asyncio.TaskGroup):
    """A task group with a flag that is set when a task fails."""

    def __init__(self) -> None:
        super().__init__()
        # True if a task has failed and the group is cancelling the others.
        self.is_ending: bool = False

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


async def wait_and_clear(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set or the time is over, and clear the event."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()


async def raise_in_task(error: BaseException) -> None:
    """Raise an error, so that a task group cancels its other tasks."""
    raise error


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in nested exception groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
