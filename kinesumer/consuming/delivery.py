"""Deliver records to the tasks that iterate over them with ``async for``.

The lease is checked right before each record is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from kinesumer.consuming.delivery_protocol import Starter, UserTask
from kinesumer.consuming.driver import DeliveryDriver, Handout
from kinesumer.core.handout import Loop
from kinesumer.errors import ConfigurationError
from kinesumer.model.records import Batch, Record
from kinesumer.ports import Clock


class RecordDelivery(DeliveryDriver):
    """Delivers batches to loops. Each loop is held by the task that runs it."""

    def __init__(self, clock: Clock, *, acks_by_asking: bool, **options: Any) -> None:
        super().__init__(clock, acks_by_asking=acks_by_asking, **options)
        self._watched: set[UserTask] = set()

    async def iterate(
        self, start: Starter, loop: Loop
    ) -> AsyncGenerator[Record[Any], None]:
        """Start the client if necessary, then yield records."""
        try:
            await start()
            now, decodes = self._clock.now, self._policy is not None
            while (handout := await self._take(loop)) is not None:
                owned, lease = handout.shard, handout.shard.lease
                due = self._yield_at
                # The hot path: no call for a record except the clock's.
                for record in handout.one_by_one():
                    time = now()
                    if time >= lease.deadline or owned.revoked or time >= due:
                        handout.keep_back()
                        break
                    handout.busy_since = time
                    if not decodes:
                        yield record
                    elif (decoded := await self._decoded(handout, record)) is not None:
                        yield decoded
                    elif not handout.in_hand:  # the record was taken back
                        break
        finally:
            self._left(loop)

    async def iterate_batches(
        self, start: Starter, loop: Loop
    ) -> AsyncGenerator[Batch[Any], None]:
        """Start the client if necessary, then yield batches.

        A batch ends before a record whose DecodeError is raised. The next request
        raises the error.
        """
        try:
            await start()
            while (handout := await self._take(loop)) is not None:
                batch: Batch[Any] = handout.whole(self._clock.now())
                if self._policy is not None:
                    batch = await self._decoded_batch(handout, batch)
                if batch.records:
                    yield batch
        finally:
            self._left(loop)

    def note_caller(self, loop: Loop) -> None:
        """Record that the current task begins a loop, or requests its next item."""
        task = current_task()
        loop.called(task)
        self._watch(task)

    async def _take(self, loop: Loop) -> Handout | None:
        task = asyncio.current_task()
        is_awaited = any(t and not t.cancelling() for t in self._waiting_tasks)
        if self.acks_by_asking and is_awaited:
            raise ConfigurationError(
                f"two tasks iterate over {loop.what}: asking for the next one "
                "acknowledges the one before, which the other task may still have; let "
                'one task iterate, or use run() or Config(commit="manual")'
            )
        self._watch(task)
        handout = await self._ask(loop, task, task)
        if handout is not None:
            self._lag.start()
        return handout

    def _left(self, loop: Loop) -> None:
        self.machine.left(loop, self._clock.now())
        self._carry_out()

    def _watch(self, task: UserTask | None) -> None:
        if task is not None and task not in self._watched:
            self._watched.add(task)
            task.add_done_callback(self._task_ended)

    def _task_ended(self, task: UserTask) -> None:
        """Let others have the records of a task that has ended."""
        self._watched.discard(task)
        self.machine.ended(task, self._clock.now(), lambda: _failure(task))
        self._carry_out()


def _failure(task: UserTask) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def current_task() -> UserTask | None:
    """Return the task that runs, or None if no task or no event loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
