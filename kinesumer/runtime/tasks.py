"""The tasks of a client: the first fault ends them all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Iterable

T = TypeVar("T")


class FailFastTaskGroup(asyncio.TaskGroup):
    """A task group that can tell when nothing can be begun any more."""

    def __init__(self) -> None:
        super().__init__()
        self.is_ending = False
        """Whether a task has failed, so that the others are being cancelled."""

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        **options: Any,
    ) -> asyncio.Task[T]:
        """Start a task. Raises RuntimeError when a fault ends them all."""
        task = super().create_task(coro, **options)
        # It is called right after the group's own callback, which cancels the others.
        task.add_done_callback(self._look)
        return task

    def _look(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.is_ending = True


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all calls return; the first fault ends the others, and is raised.

    What ``gather()`` leaves running would go on asking behind a ``--watch``.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


async def raise_in_task(error: BaseException) -> None:
    """Raise an error, in a task: that ends the others."""
    raise error


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single error of nested groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
