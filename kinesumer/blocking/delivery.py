"""What ``consume()`` returns to a thread: an iterator of records, or of batches."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import CancelledError
from threading import get_ident
from typing import TYPE_CHECKING, Any

from kinesumer.consuming.delivered_batch import Iteration
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.watchdog import thread_stack
from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesumer.blocking.portal import LoopThread
    from kinesumer.consuming.delivery_protocol import Starter
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record


NOBODY = 0


class ThreadIterator:
    """The iteration of a thread: the first that asks, for as long as it lives."""

    def __init__(
        self,
        loop_thread: LoopThread,
        delivery: ThreadDelivery,
        start: Starter,
    ) -> None:
        self.delivery = delivery
        self.thread = NOBODY
        self._loop_thread = loop_thread
        self._start = start

    def begin(self) -> None:
        """Make the calling thread the one that asks.

        Raises ConfigurationError if another one is, and what the start raises.
        """
        user, caller = self.delivery.user, threading.current_thread()
        if user is not None and user is not caller and user.is_alive():
            raise ConfigurationError(
                f"thread {user.name!r} iterates over these records, and only one "
                "may: let it pass them on, or use run() with a handler"
            )
        self.delivery.user = caller
        self._loop_thread.call(self._start)
        self.thread = get_ident()

    def call(self, function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        """Run a coroutine function on the loop; None if the block has ended."""
        try:
            return self._loop_thread.call(function, *arguments)
        except (ConfigurationError, RuntimeError, CancelledError):
            if self._loop_thread.is_over:
                return None
            raise


class Records:
    """What ``consume()`` returns: an iterator of records, or of ``batches()``.

    It may be left and iterated again. With ``commit="auto"`` a request for the next
    record acknowledges the one before. One thread may iterate, as long as it lives:
    another thread gets ConfigurationError.
    """

    def __init__(self, iterator: ThreadIterator) -> None:
        self._iterator, self._call = iterator, iterator.call
        self._take = iterator.delivery.take

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        if get_ident() != self._iterator.thread:
            self._iterator.begin()
        record = self._take(self._call)
        if record is None:
            raise StopIteration
        return record

    def batches(self) -> Iterator[Batch]:
        """Iterate over batches: many records of one shard, in order, with its lag.

        Asking for the next batch marks all of the one before as done.
        """
        return Batches(self._iterator)


class Batches:
    """An iterator of batches, for one thread."""

    def __init__(self, iterator: ThreadIterator) -> None:
        self._iterator = iterator

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if get_ident() != self._iterator.thread:
            self._iterator.begin()
        batch = self._iterator.delivery.take_batch(self._iterator.call)
        if batch is None:
            raise StopIteration
        return batch


if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from kinesumer.consuming.delivered_batch import DeliveredBatch, UserTask
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.watchdog import InFlightWork
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record
    from kinesumer.ports import Clock

    Call = Callable[..., Any]
    """Runs a coroutine function on the loop; None once there is no loop."""
    Hold = Callable[..., Awaitable[bool]]


ACKS_SECONDS = 0.02
"""Acknowledgements are passed to the loop together, at most this often."""


class ThreadDelivery(RecordDelivery):
    """The batch that a thread is at. Its coroutines run on the client's event loop.

    ``ack`` is called there with each record that ``ack_soon()`` was told.
    """

    _shares_loop = False

    def __init__(
        self, clock: Clock, *, acks_by_asking: bool, ack: Callable[[Record], None]
    ) -> None:
        super().__init__(clock, acks_by_asking=acks_by_asking)
        self.now = clock.now
        self.user: threading.Thread | None = None
        """The thread that asks for records."""
        self._current: Any = None
        """The batch at hand, a DeliveredBatch; None before the first one."""
        self._iteration = Iteration("records")
        self._ack = ack
        self._acks: deque[Record] = deque()
        self._are_coming = False

    def oldest_work(self) -> InFlightWork | None:
        """Return the record or batch that the thread is at; None if it waits."""
        work, user = super().oldest_work(), self.user
        if work is None or user is None or user.ident is None:
            return work
        ident = user.ident
        return work._replace(stack=lambda: thread_stack(ident))

    # --- what the thread calls, with a way to the loop --------------------------------

    def take(self, call: Call) -> Record | None:
        """Return the next record; asking for it marks the one before as done.

        Only what ends a batch, or a lease, crosses over to the loop. None at the end.
        """
        record: Record
        while True:
            delivered = self._current
            for record in () if delivered is None else delivered.ahead:
                owned, moment = delivered.owned, self.now()
                late = moment >= owned.lease.deadline
                if late or owned.revoked or self._closed:
                    if not self._wait(call, self._hold, owned):
                        break
                    moment = self.now()
                delivered.busy_since = moment
                return record
            if not call(self._fetch):
                return None

    def take_batch(self, call: Call) -> Batch | None:
        """Return the next batch; asking for it marks the one before as done."""
        while True:
            batch: Batch | None = call(self.next_batch, self._iteration)
            if batch is None or self._is_permitted(self._current.owned):
                return batch
            if self._wait(call, self._hold_batch, batch):
                return batch

    def _wait(self, call: Call, hold: Hold, what: Any) -> bool:
        """Wait on the loop until permitted; False if it never will be."""
        while call(hold, what):
            if self._is_permitted(self._current.owned):  # it took a moment to come back
                return True
        return False

    def _is_permitted(self, owned: OwnedShard) -> bool:
        return owned.lease.permits(self.now()) and not owned.revoked

    # --- what is called on the loop ---------------------------------------------------

    async def _fetch(self) -> bool:
        """Leave the batch at hand and get the next one; False at the end."""
        delivered = await self._take(self._iteration)
        if delivered is not None:
            delivered.one_by_one()
        return delivered is not None

    async def _take(self, iteration: Iteration) -> DeliveredBatch | None:
        delivered = await super()._take(iteration)
        if delivered is not None:
            self._current = delivered
        return delivered

    def _check_alone(self, iteration: Iteration) -> None:
        """Do nothing: other threads get an error before they get here."""

    def _note(self, iteration: Iteration, task: UserTask | None) -> None:
        """Do nothing: a thread iterates, not the task of its call."""

    async def _hold(self, owned: OwnedShard) -> bool:
        """Keep back the record that was just taken until the lease permits it."""
        self._current.keep_back()
        self._count_back(owned)
        if not await self._permitted(owned):
            return False
        self._current.hand_on()
        return True

    async def _hold_batch(self, batch: Batch) -> bool:
        """Keep back a batch that was fetched until the lease permits it."""
        owned = self._current.owned
        self._current.keep_back_whole(batch)
        self._count_back(owned)
        if not await self._permitted(owned):
            return False
        self._current.whole(self.now())
        return True

    def _count_back(self, owned: OwnedShard) -> None:
        """Take back what was counted before the thread was permitted to have it."""
        owned.reduce_delivered(self._current.offsets[0] + self._current.handed)

    # --- marks ----------------------------------------------------------------------

    def ack_soon(self, record: Record, loop: asyncio.AbstractEventLoop) -> None:
        """Note from any thread that a record is done."""
        self._acks.append(record)
        if not self._are_coming:
            self._are_coming = True
            loop.call_soon_threadsafe(loop.call_later, ACKS_SECONDS, self._take_acks)

    def _take_acks(self) -> None:
        self._are_coming = False
        while self._acks:
            self._ack(self._acks.popleft())

    def sync_progress(self) -> None:
        """Bring the owned shards of what is at hand and what was marked up to date."""
        self._take_acks()
        super().sync_progress()
