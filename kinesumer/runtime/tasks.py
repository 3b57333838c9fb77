"""Task groups that end at the first failure."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable

T = TypeVar("T")


class FailFastTaskGroup(asyncio.TaskGroup):
    """A task group that shows whether a task has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ending = False
        """Whether a task has failed, so that the others are being cancelled."""

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        **options: Any,
    ) -> asyncio.Task[T]:
        """Start a task. Raise RuntimeError if the group is ending."""
        task = super().create_task(coro, **options)
        # This runs right after the group's own callback, which cancels the others.
        task.add_done_callback(self._look)
        return task

    def _look(self, task: asyncio.Task[Any]) -> None:
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


async def raise_in_task(error: BaseException) -> None:
    """Raise an error. As a task of a group, it ends the other tasks."""
    raise error


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error in nested exception groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
