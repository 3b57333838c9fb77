"""What ``consume()`` returns: iterators of records and of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from kinesumer.consuming.delivered_batch import Iteration
from kinesumer.model.batch import Batch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
    from types import AsyncGeneratorType

    from kinesumer.consuming.delivery import RecordDelivery
    from kinesumer.consuming.delivery_protocol import Starter
    from kinesumer.model.records import Record

T = TypeVar("T")


class Resumable(Generic[T]):
    """An async iterator that outlives its generator: a timeout ends only that."""

    def __init__(
        self,
        delivery: RecordDelivery,
        what: str,
        begin: Callable[[Iteration], AsyncGenerator[T, None]],
    ) -> None:
        self._delivery = delivery
        self._begin = begin
        self._iteration = Iteration(what)
        self._generator: AsyncGeneratorType[T, None] | None = None

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    def __anext__(self) -> Coroutine[object, object, T]:
        # Not in _next(), which may run in a task that wait_for() makes for it.
        self._delivery.note_caller(self._iteration)
        return self._next()

    async def _next(self) -> T:
        generator = self._generator
        if generator is None or generator.ag_frame is None or generator.ag_running:
            if generator is not None:
                self._iteration = self._iteration.renewed()
            begun = self._begin(self._iteration)
            generator = self._generator = cast("AsyncGeneratorType[T, None]", begun)
        return await anext(generator)

    async def aclose(self) -> None:
        """End the loop, with what it has in hand."""
        if self._generator is not None:
            await self._generator.aclose()


class Batches(Resumable[Batch]):
    """What ``batches()`` returns: an async iterator of batches."""


class Records:
    """What ``consume()`` returns: an async iterator of records, or of ``batches()``.

    It may be left and iterated again, also after a timeout. With ``commit="auto"``
    asking for the next record marks the one before as done, and one task at a time may
    ask: another one gets ConfigurationError. With ``commit="manual"`` several tasks may
    iterate, each over batches of its own.
    """

    def __init__(self, delivery: RecordDelivery, start: Starter) -> None:
        self._delivery = delivery
        self._start = start
        self._has_started = False
        self._iterator = Resumable(delivery, "records", self._each)

    def __aiter__(self) -> AsyncIterator[Record]:
        # The generator itself is what is iterated: nothing is faster per record.
        iteration = Iteration("records")
        self._delivery.note_caller(iteration)
        return self._each(iteration)

    def __anext__(self) -> Coroutine[object, object, Record]:
        return self._iterator.__anext__()

    def _each(self, iteration: Iteration) -> AsyncGenerator[Record, None]:
        return self._delivery.iterate(self._start_once, iteration)

    def batches(self) -> Batches:
        """Iterate over batches: many records of one shard, in order, with its lag.

        With ``commit="auto"`` asking for the next batch marks all of the one before as
        done, and raises ConfigurationError if another task waits for one. With
        ``commit="manual"`` several tasks may each call this. A task has its batch in
        hand until it asks for its next one, leaves the loop or ends. If it fails or is
        cancelled, the records that it hasn't marked go to the next task that asks.
        """
        return Batches(
            self._delivery,
            "batches()",
            lambda iteration: self._delivery.iterate_batches(
                self._start_once, iteration
            ),
        )

    async def _start_once(self) -> None:
        if not self._has_started:
            await self._start()
            self._has_started = True
