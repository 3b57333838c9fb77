"""Deliver records with decoded values to a user's thread."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kinesumer.blocking.delivery import ThreadDelivery
from kinesumer.consuming.decoded_delivery import decode_batch
from kinesumer.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesumer.blocking.portal import LoopThread
    from kinesumer.consuming.delivered_batch import DeliveredBatch
    from kinesumer.decoding.decoders import DecodePolicy
    from kinesumer.model.records import Batch, Record
    from kinesumer.ports import Clock

T = TypeVar("T")


class DecodedThreadDelivery(ThreadDelivery):
    """Decodes records in the user's thread, right before it gets them.

    What an async decoder awaits runs on the client's event loop.
    """

    def __init__(
        self,
        loop_thread: LoopThread,
        clock: Clock,
        policy: DecodePolicy,
        *,
        acks_by_asking: bool,
        ack: Callable[[Record[Any]], None],
    ) -> None:
        super().__init__(loop_thread, clock, acks_by_asking=acks_by_asking, ack=ack)
        self._policy = policy.with_calls(self._waiting)

    def take(self) -> Record[Any] | None:
        """Mark the previous record as done. Return the next one; None at the end."""
        while (record := super().take()) is not None:
            try:
                decoded = _finished(self._policy.decode(self._telemetry, record))
            except BaseException as error:
                if self._is_end(error):
                    return None
                if not isinstance(error, DecodeError):
                    self._call(self._keep_back, None)
                raise
            if not self._is_permitted(self._current.owned):
                self._call(self._keep_back, None)
            elif decoded is not None:
                return decoded
            else:
                self._skip(self._current, record)
        return None

    def take_batch(self) -> Batch[Any] | None:
        """Mark the previous batch as done. Return the next one; None at the end."""
        while (batch := super().take_batch()) is not None:
            current = self._current
            decode = partial(self._policy.decode, self._telemetry)
            try:
                decoded = _finished(
                    decode_batch(
                        decode, current, batch, _no_pause, self._skip, self.buffer_bytes
                    )
                )
            except BaseException as error:
                if self._is_end(error):
                    return None
                if not isinstance(error, DecodeError):
                    self._call(self._keep_back, batch)
                raise
            if not self._is_permitted(current.owned):
                self._call(self._keep_back, batch)
            elif decoded.records:
                return decoded
        return None

    def _is_end(self, error: BaseException) -> bool:
        """Return whether an error may mean that another thread has left the block."""
        return self._loop_thread.is_over and isinstance(error, Exception)

    def _waiting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that waits for an awaitable that the function returns."""

        def call(*arguments: object) -> Any:
            result = function(*arguments)
            if inspect.isawaitable(result):
                return self._loop_thread.call(_awaited, result)
            return result

        return call

    def _skip(self, delivered: DeliveredBatch, record: Record) -> None:
        self.limit.skip()
        delivered.owned.outcomes.skip(record.position)
        # With ``acks_by_asking``, the next request marks the record as done.
        if not self.acks_by_asking:
            self.ack_soon(record)

    async def _keep_back(self, batch: Batch | None) -> None:
        """Take back the last record or a whole batch, to decode it again.

        The event loop runs this, since it counts what was handed out.
        """
        current = self._current
        if batch is None:
            current.keep_back()
        else:
            current.keep_back_from(batch, 0)
        current.owned.reduce_delivered(current.offsets[current.handed])
        # The next request may be for a record, whatever the last one was for.
        current.one_by_one()
        self.sync_progress()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


async def _no_pause() -> None:
    """Do nothing: other tasks run in another thread."""


def _finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that awaits nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("decoding awaited in a user's thread; please report this")
