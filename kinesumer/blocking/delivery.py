"""Deliver records to a user's thread, through iterators of records or of batches."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Generic, Literal, Self, TypeVar, overload

from kinesumer.blocking.portal import LoopThread
from kinesumer.consuming.delivery_protocol import Starter, UserTask
from kinesumer.consuming.driver import DeliveryDriver, Handout
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.watchdog import InFlightWork, thread_stack
from kinesumer.core.handout import Loop
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.decoding.decoders import DecodePolicy
from kinesumer.errors import ConfigurationError
from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.records import Record, T_co
from kinesumer.model.validation import ForThreads
from kinesumer.ports import Clock
from kinesumer.telemetry.history import Items

T = TypeVar("T")
B_co = TypeVar("B_co", bound=Batch[Any], covariant=True)
I_co = TypeVar("I_co", bound=Record[Any] | Batch[Any], covariant=True)

# Acknowledgements are collected for this time, and then passed to the event loop.
# Chosen: the loop wakes 50 times a second at most, and commits are seconds apart.
ACKS_SECONDS = 0.02


class _Caller(threading.local):
    """Remembers whether the calling thread is the one that iterates."""

    # Thread-local, since a new thread may reuse the id of an ended thread.
    iterates = False


class _Taken(ForThreads, Generic[I_co]):
    """An iterator of what a delivery hands out.

    A ``with`` block acknowledges at its end what user code has.
    """

    def __init__(
        self,
        delivery: ThreadDelivery,
        start: Starter,
        take: Callable[[], I_co | None],
        items: Items,
    ) -> None:
        history = delivery.history
        self._delivery, self._start = delivery, start
        self._take = take if history is None else history.before_return(take, items)

    def __iter__(self) -> Iterator[I_co]:
        return self

    # A generator couldn't continue after an error such as KeyboardInterrupt.
    def __next__(self) -> I_co:
        if not self._delivery.caller.iterates:
            self._delivery.begin(self._start)
        taken = self._take()
        if taken is None:
            raise StopIteration
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(ack=kind is None and self._delivery.acks_by_asking)

    def close(self, *, ack: bool = False) -> None:
        """End the loop. With ``ack``, all records that user code has are done.

        Without it, a record in hand is not done: if the client ends, the shard's next
        owner gets the record again. Raises ConfigurationError for ``ack`` with
        ``commit="manual"``.
        """
        if ack:
            self._delivery.finish()


class Batches(_Taken[B_co]):
    """The iterator of batches that ``batches()`` returns."""


class Records(_Taken[Record[T_co]], Generic[T_co]):
    """The iterator of records that ``consume()`` returns, and its ``batches()``.

    A loop over the records may end early, and another loop may continue. With
    ``commit="auto"``, a request for a record acknowledges the previous record. A
    ``with`` block that ends without an error acknowledges the record in hand, too.
    Other threads get ConfigurationError until the thread that iterates has ended.
    """

    def __init__(self, delivery: ThreadDelivery, start: Starter) -> None:
        super().__init__(delivery, start, delivery.take, "records")

    @overload
    def batches(self, *, columns: Literal[False] = False) -> Batches[Batch[T_co]]: ...
    @overload
    def batches(self, *, columns: Literal[True]) -> Batches[ColumnBatch[T_co]]: ...
    def batches(self, *, columns: bool = False) -> Batches[Any]:
        """Return an iterator of batches.

        A batch has records of one shard, in order, and the shard's lag. With
        ``columns``, it is a ``ColumnBatch``, which needs pyarrow: ConfigurationError is
        raised without it.

        A request for the next batch marks all records of the previous batch as done.
        """
        kind = self._delivery.batch_kind(columns=columns)
        take = partial(self._delivery.take_batch, kind)
        return Batches(self._delivery, self._start, take, "batches")


class ThreadDelivery(DeliveryDriver):
    """Delivers records to a user's thread, and decodes them there.

    The coroutines of this class run on the client's event loop. The loop also calls
    ``ack`` with each record that was passed to ``ack_soon()``. What an async decoder
    awaits runs on the event loop, too.
    """

    shares_loop = False

    def __init__(
        self,
        loop_thread: LoopThread,
        clock: Clock,
        *,
        acks_by_asking: bool,
        ack: Callable[[Record[Any] | Batch[Any]], None],
        policy: DecodePolicy | None = None,
        **options: Any,
    ) -> None:
        if policy is not None:
            policy = policy.with_calls(self._waiting)
        super().__init__(clock, acks_by_asking=acks_by_asking, policy=policy, **options)
        self._loop_thread = loop_thread
        self.now: Callable[[], float] = clock.now
        # The thread that iterates.
        self.user: threading.Thread | None = None
        self.caller: _Caller = _Caller()
        # The thread that leaves the ``with`` block of the client.
        self.closer: threading.Thread | None = None
        # The batch that the thread gets records of; None if there is none.
        self._current: Any = None
        # When the turn at the current batch ends; 0 after ``close()``.
        self._turn_ends_at = 0.0
        self._loop = Loop("records")
        self._ack_on_loop = ack
        self._acks: deque[Record[Any] | Batch[Any]] = deque()
        self._are_coming = False

    def close(self, fatal: BaseException | None = None) -> None:
        """End the iteration. The user's thread notices it like the end of a turn."""
        super().close(fatal)
        self._turn_ends_at = 0.0

    def oldest_work(self) -> InFlightWork | None:
        """Return what the user's thread works on; None if it waits for records."""
        work, user = super().oldest_work(), self.user
        if work is None or user is None or user.ident is None:
            return work
        ident = user.ident
        return work._replace(stack=lambda: thread_stack(ident))

    def is_in_use_beside(self, task: UserTask | None) -> bool:
        """Return whether a thread other than the closing one may have records."""
        user = self.user
        return user is not None and user is not self.closer and user.is_alive()

    # --- what the thread calls --------------------------------------------------------

    def begin(self, start: Starter) -> None:
        """Let the calling thread be the one that iterates, and start the client.

        Raises ConfigurationError if another thread iterates. Errors of the start are
        passed on.
        """
        user, caller = self.user, threading.current_thread()
        if user is not None and user is not caller and user.is_alive():
            raise ConfigurationError(
                f"thread {user.name!r} iterates over these records, and only one "
                "may: let it pass them on, or use run() with a handler"
            )
        self.user = caller
        self._loop_thread.call(start)
        # Set last: after a failed start, the next request starts the client again.
        self.caller.iterates = True

    def take(self) -> Record[Any] | None:
        """Mark the previous record as done. Return the next record; None at the end.

        Calls the event loop only at the end of a turn, a batch or a lease.
        """
        record: Record
        while True:
            handout, ends_turn = self._current, False
            for record in () if handout is None else handout.ahead:
                owned, now = handout.shard, self.now()
                if (
                    now >= owned.lease.deadline
                    or owned.revoked
                    or now >= self._turn_ends_at
                ):
                    ends_turn = True
                    break
                handout.busy_since = now
                if self._policy is None:
                    return record
                decoded = self._finished(self._decoded(handout, record))
                if decoded is not None:
                    return decoded
                # The record was skipped, unless it was taken back or the block ended.
                if self._current is None or self._loop_thread.is_over:
                    break
            if not self._call(self._fetch, ends_turn):
                return None

    def take_batch(self, kind: type[Batch]) -> Any:
        """Mark the previous batch as done. Return the next batch; None at the end."""
        while True:
            batch: Batch[Any] | None = self._call(self._fetch_batch, kind)
            if batch is None:
                return None
            handout = self._current
            if self._policy is not None:
                batch = self._finished(self._decoded_batch(handout, batch))
                if batch is None or batch.records:
                    return batch
            elif self._is_permitted(handout):
                return batch
            else:
                self._keep_back(handout, batch)

    def finish(self) -> None:
        """Mark all records that user code has as done."""
        self._call(self._finish)

    def _call(self, function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        """Run a coroutine function on the loop. Return None if the block has ended."""
        try:
            return self._loop_thread.call(function, *arguments)
        except (ConfigurationError, RuntimeError, CancelledError):
            # These errors are expected if another thread leaves the ``with`` block.
            if self._loop_thread.is_over:
                return None
            raise

    def _finished(self, decoding: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of decoding, which awaits nothing in this thread.

        Return None if another thread has left the block meanwhile.
        """
        try:
            decoding.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        except Exception:
            if self._loop_thread.is_over:
                return None
            raise
        decoding.close()
        raise RuntimeError("decoding awaited in a user's thread; please report this")

    def _keep_back(
        self, handout: Any, batch: Batch[Any] | None = None, index: int = 0
    ) -> None:
        """Take back records on the event loop, which counts what was handed out."""
        self._call(self._keep_back_on_loop, handout, batch, index)

    def _waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits for an awaitable that the function returns."""

        def call(*arguments: object) -> Any:
            result = function(*arguments)
            if inspect.isawaitable(result):
                return self._loop_thread.call(_awaited, result)
            return result

        return call

    # --- what is called on the loop ---------------------------------------------------

    async def _finish(self) -> None:
        self.ack_in_hand()
        self._current = None  # the next request claims the rest of the batch again

    async def _fetch(self, ends_turn: bool) -> bool:
        """Finish the current batch and get the next batch. Return False at the end.

        If the batch's turn ends, take back its last record.
        """
        if ends_turn:
            self._current.keep_back()
        handout = await self._take()
        if handout is not None:
            handout.one_by_one()
            self._turn_ends_at = self.now() + TURN_SECONDS
        return handout is not None

    async def _fetch_batch(self, kind: type[Batch]) -> Batch[Any] | None:
        handout = await self._take()
        return None if handout is None else handout.whole(self.now(), kind)

    async def _take(self) -> Handout | None:
        self._current = None  # until there is another, also if the wait is interrupted
        task = asyncio.current_task()
        self._current = handout = await self._ask(self._loop, None, task)
        return handout

    async def _keep_back_on_loop(
        self, handout: Handout, batch: Batch[Any] | None, index: int
    ) -> None:
        super()._keep_back(handout, batch, index)
        if not index:
            self._current = None  # the next request claims the rest of the batch again

    # --- acknowledgements -------------------------------------------------------------

    def ack_soon(self, done: Record[Any] | Batch[Any]) -> None:
        """Accept an acknowledgement. Any thread may call this method."""
        loop = self._loop_thread.loop
        self._acks.append(done)
        # If two threads pass this check at once, one of the two calls of _take_acks()
        # finds no acknowledgement, which does no harm.
        if not self._are_coming:
            self._are_coming = True
            loop.call_soon_threadsafe(loop.call_later, ACKS_SECONDS, self._take_acks)

    def _ack(self, owned: OwnedShard, record: Record[Any]) -> None:
        self.ack_soon(record)

    def _take_acks(self) -> None:
        self._are_coming = False
        while self._acks:
            self._ack_on_loop(self._acks.popleft())

    def sync_progress(self) -> None:
        """Update the shards' progress from the current batch and acknowledgements."""
        self._take_acks()
        super().sync_progress()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable
