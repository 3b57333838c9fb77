"""What ``consume()`` returns to a thread: an iterator of records, or of batches."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from threading import get_ident
from typing import TYPE_CHECKING, Any

from kinesumer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kinesumer.blocking.crossing import Crossing
    from kinesumer.blocking.delivery import ThreadDelivery
    from kinesumer.buffer import Batch
    from kinesumer.model import Record

NOBODY = 0


class Asking:
    """The thread that asks: the first that does, for as long as it lives."""

    def __init__(
        self,
        crossing: Crossing,
        delivery: ThreadDelivery,
        start: Callable[[], Awaitable[None]],
    ) -> None:
        self.delivery = delivery
        self.thread = NOBODY
        self._crossing = crossing
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
        self._crossing.call(self._start)
        self.thread = get_ident()

    def call(self, function: Callable[..., Awaitable[Any]], *arguments: object) -> Any:
        """Run a coroutine function on the loop; None if the block has ended."""
        try:
            return self._crossing.call(function, *arguments)
        except (ConfigurationError, RuntimeError, CancelledError):
            if self._crossing.is_over:
                return None
            raise


class Records:
    """What ``consume()`` returns: an iterator of records, or of ``batches()``.

    It may be left and iterated again; asking for the next record marks the one before
    as done (``commit="auto"``). One thread at a time: another one is refused for as
    long as the first that asked lives.
    """

    def __init__(self, asking: Asking) -> None:
        self._asking, self._call = asking, asking.call
        self._take = asking.delivery.take

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        if get_ident() != self._asking.thread:
            self._asking.begin()
        record = self._take(self._call)
        if record is None:
            raise StopIteration
        return record

    def batches(self) -> Iterator[Batch]:
        """Iterate over batches: many records of one shard, in order, with its lag.

        Asking for the next batch marks all of the one before as done.
        """
        return Batches(self._asking)


class Batches:
    """An iterator of batches, for one thread."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if get_ident() != self._asking.thread:
            self._asking.begin()
        batch = self._asking.delivery.take_batch(self._asking.call)
        if batch is None:
            raise StopIteration
        return batch
