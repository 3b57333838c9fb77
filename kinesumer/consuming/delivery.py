"""Deliver records to the tasks that iterate over what ``consume()`` returns.

The lease is checked right before each record is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from types import AsyncGeneratorType
from typing import Any, Generic, Literal, Self, TypeVar, cast, overload
from weakref import ReferenceType, WeakKeyDictionary, ref

from kinesumer.consuming.delivery_protocol import Starter, UserTask
from kinesumer.consuming.driver import DeliveryDriver, Handout
from kinesumer.core.handout import Loop
from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.records import Record, T_co
from kinesumer.model.validation import ForAsyncio
from kinesumer.ports import Clock
from kinesumer.telemetry.history import D, Items, RecordedLoop

T = TypeVar("T")


class RecordDelivery(DeliveryDriver):
    """Delivers batches to loops. Each loop is held by the task that runs it."""

    def __init__(self, clock: Clock, *, acks_by_asking: bool, **options: Any) -> None:
        super().__init__(clock, acks_by_asking=acks_by_asking, **options)
        self._watched: set[UserTask] = set()

    def iterate(self, start: Starter, loop: Loop) -> AsyncGenerator[Record[Any], None]:
        """Start the client if necessary, then yield records."""
        return self._recorded(self._iterate(start, loop), "records")

    async def _iterate(
        self, start: Starter, loop: Loop
    ) -> AsyncGenerator[Record[Any], None]:
        try:
            await start()
            now, policy = self._clock.now, self._policy
            decoder = None if policy is None else policy.decoder
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
                    if decoder is None:
                        yield record
                    elif (decoded := decoder.try_json(record)) is not None or (
                        decoded := await self._decoded(handout, record)
                    ) is not None:
                        yield decoded
                    elif not handout.in_hand:  # the record was taken back
                        break
        finally:
            self._left(loop)

    def iterate_batches(
        self, start: Starter, loop: Loop, kind: type[Batch]
    ) -> AsyncGenerator[Batch[Any], None]:
        """Start the client if necessary, then yield batches of this kind.

        A batch ends before a record whose DecodeError is raised. The next request
        raises the error.
        """
        return self._recorded(self._iterate_batches(start, loop, kind), "batches")

    async def _iterate_batches(
        self, start: Starter, loop: Loop, kind: type[Batch]
    ) -> AsyncGenerator[Batch[Any], None]:
        try:
            await start()
            while (handout := await self._take(loop)) is not None:
                batch: Batch[Any] = handout.whole(self._clock.now(), kind)
                if self._policy is not None:
                    batch = await self._decoded_batch(handout, batch)
                if batch.records:
                    yield batch
        finally:
            self._left(loop)

    def _recorded(
        self, items: AsyncGenerator[D, None], kind: Items
    ) -> AsyncGenerator[D, None]:
        if self.history is None:
            return items
        return RecordedLoop(items, self.history, kind)

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


class _Block(ForAsyncio):
    """Ends a loop at the end of an ``async with`` block."""

    _delivery: RecordDelivery

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.aclose(ack=error is None and self._delivery.acks_by_asking)

    async def aclose(self, *, ack: bool = False) -> None:
        """End the loop. With ``ack``, all records that user code has are done.

        Without it, a record in hand is not done: if the client ends, the shard's next
        owner gets the record again. Raises ConfigurationError for ``ack`` with
        ``commit="manual"``.
        """
        if ack:
            self._delivery.ack_in_hand()
        await self._end_loop()

    async def _end_loop(self) -> None:
        raise NotImplementedError


class _LoopIterator(Generic[T]):
    """A loop that creates a new generator if a timeout ended the old one."""

    def __init__(
        self, what: str, begin: Callable[[Loop], AsyncGenerator[T, None]]
    ) -> None:
        self._begin = begin
        self.loop = Loop(what)
        self._generator: AsyncGeneratorType[T, None] | None = None

    async def next(self) -> T:
        """Return the loop's next item."""
        generator = self._generator
        if generator is None or generator.ag_frame is None or generator.ag_running:
            if generator is not None:
                self.loop = Loop(self.loop.what, self.loop.called_by)
            begun = self._begin(self.loop)
            generator = self._generator = cast("AsyncGeneratorType[T, None]", begun)
        return await anext(generator)

    async def aclose(self) -> None:
        """End the loop. The next request begins it again."""
        if self._generator is not None:
            await self._generator.aclose()


class Resumable(_Block, Generic[T]):
    """An async iterator that several tasks may share. Each task has its own loop.

    If a request acknowledges the item before it, only one task may iterate at a time.
    Then there is one loop, whichever task continues it.
    """

    def __init__(
        self,
        delivery: RecordDelivery,
        what: str,
        begin: Callable[[Loop], AsyncGenerator[T, None]],
    ) -> None:
        self._delivery, self._what, self._begin = delivery, what, begin
        self._loops: WeakKeyDictionary[object, _LoopIterator[T]] = WeakKeyDictionary()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    def __anext__(self) -> Coroutine[object, object, T]:
        # Find the caller here: wait_for() may run the coroutine in another task.
        has_one = self._delivery.acks_by_asking
        caller = self if has_one else current_task() or self
        loop = self._loops.get(caller)
        if loop is None:
            loop = self._loops[caller] = _LoopIterator(self._what, self._begin)
        self._delivery.note_caller(loop.loop)
        return loop.next()

    async def _end_loop(self) -> None:
        for loop in list(self._loops.values()):
            await loop.aclose()


class Batches(Resumable[T]):
    """The async iterator of batches that ``batches()`` returns."""


class Records(_Block, Generic[T_co]):
    """The async iterator of records that ``consume()`` returns; see also ``batches()``.

    It may be left and iterated again, also after a timeout. With ``commit="auto"`` a
    request for the next record acknowledges the one before. ``async with`` acknowledges
    the record in hand, too, when its block ends without an error. Only one task at a
    time may iterate; another one gets ConfigurationError. With ``commit="manual"``
    several tasks may iterate, each over its own batches.
    """

    def __init__(self, delivery: RecordDelivery, start: Starter) -> None:
        self._delivery = delivery
        self._start = start
        self._has_started = False
        self._iterator = Resumable(delivery, "records", self._each)
        # The last ``async for`` loop. A strong reference would keep a left loop alive.
        self._generator: ReferenceType[AsyncGenerator[Record[T_co], None]] | None = None

    def __aiter__(self) -> AsyncIterator[Record[T_co]]:
        # Return the generator itself, since that costs the least time per record.
        loop = Loop("records")
        self._delivery.note_caller(loop)
        generator = self._each(loop)
        self._generator = ref(generator)
        return generator

    def __anext__(self) -> Coroutine[object, object, Record[T_co]]:
        return self._iterator.__anext__()

    def _each(self, loop: Loop) -> AsyncGenerator[Record[T_co], None]:
        return self._delivery.iterate(self._start_once, loop)

    @overload
    def batches(self, *, columns: Literal[False] = False) -> Batches[Batch[T_co]]: ...
    @overload
    def batches(self, *, columns: Literal[True]) -> Batches[ColumnBatch[T_co]]: ...
    def batches(self, *, columns: bool = False) -> Batches[Any]:
        """Iterate over batches. Each has records of one shard, in order, and the lag.

        With ``columns``, each batch is a ``ColumnBatch``: its records are Arrow arrays,
        and no object is made for each. This needs pyarrow, and raises
        ConfigurationError without it.

        With ``commit="auto"`` a request for the next batch acknowledges the one before,
        and raises ConfigurationError if another task waits for a batch. With
        ``commit="manual"`` several tasks may call this, or share the iterator. A task
        has its batch until it requests the next one, leaves the loop or ends. If the
        task fails or is cancelled, the next task gets the records that aren't
        acknowledged.
        """
        kind = self._delivery.batch_kind(columns=columns)
        return Batches(
            self._delivery,
            "batches()",
            lambda loop: self._delivery.iterate_batches(self._start_once, loop, kind),
        )

    async def _end_loop(self) -> None:
        await self._iterator._end_loop()
        generator = None if self._generator is None else self._generator()
        if generator is not None:
            await generator.aclose()

    async def _start_once(self) -> None:
        if not self._has_started:
            await self._start()
            self._has_started = True
