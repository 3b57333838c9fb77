"""Deliver records with decoded values to tasks that iterate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.errors import DecodeError
from kinesumer.model.records import Batch
from kinesumer.runtime.clock import yield_to_loop
from kinesumer.runtime.decompression import DECOMPRESSED

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from kinesumer.consuming.delivered_batch import DeliveredBatch, Iteration
    from kinesumer.consuming.delivery_protocol import Starter
    from kinesumer.decoding.decoders import DecodePolicy
    from kinesumer.model.records import Record
    from kinesumer.ports import Clock


class DecodedDelivery(RecordDelivery):
    """Decodes records right before user code gets them.

    A record whose DecodeError is raised counts as handed out, like a record that user
    code received. After any other error, or a cancellation, it is decoded again.
    """

    def __init__(
        self, clock: Clock, policy: DecodePolicy, *, acks_by_asking: bool
    ) -> None:
        super().__init__(clock, acks_by_asking=acks_by_asking)
        self._policy = policy

    async def iterate(
        self, start: Starter, iteration: Iteration
    ) -> AsyncGenerator[Record[Any], None]:
        """Start the client if necessary, then yield decoded records."""
        try:
            await start()
            now, decode = self._clock.now, partial(self._policy.decode, self._telemetry)
            while (delivered := await self._take(iteration)) is not None:
                owned, lease = delivered.owned, delivered.owned.lease
                due = self._yield_at
                for record in delivered.one_by_one():
                    time = now()
                    if time >= lease.deadline or owned.revoked or time >= due:
                        delivered.keep_back()
                        break
                    delivered.busy_since = time
                    try:
                        decoded = await decode(record)
                    except DecodeError:
                        raise
                    except BaseException:
                        self._keep_back(delivered)
                        raise
                    # An async decoder may take longer than the lease.
                    if now() >= lease.deadline or owned.revoked:
                        self._keep_back(delivered)
                        break
                    if decoded is not None:
                        yield decoded
                    else:
                        self._skip(delivered, record)
        finally:
            self._left(iteration)

    async def iterate_batches(
        self, start: Starter, iteration: Iteration
    ) -> AsyncGenerator[Batch[Any], None]:
        """Start the client if necessary, then yield decoded batches.

        A batch ends before a record whose DecodeError is raised. The next request
        raises the error.
        """
        try:
            await start()
            decode = partial(self._policy.decode, self._telemetry)
            while (delivered := await self._take(iteration)) is not None:
                batch = delivered.whole(self._clock.now())
                try:
                    decoded = await decode_batch(
                        decode,
                        delivered,
                        batch,
                        self._pause,
                        self._skip,
                        self.buffer_bytes,
                    )
                except DecodeError:
                    raise
                except BaseException:
                    self._keep_back(delivered, batch)
                    raise
                owned = delivered.owned
                if owned.revoked or not owned.lease.permits(self._clock.now()):
                    self._keep_back(delivered, batch)
                elif decoded.records:
                    yield decoded
        finally:
            self._left(iteration)

    async def _pause(self) -> None:
        """Let other tasks run if that is due."""
        if self._clock.now() >= self._yield_at:
            await yield_to_loop(self._lag.seconds())
            self._yield_at = self._clock.now() + TURN_SECONDS

    def _skip(self, delivered: DeliveredBatch, record: Record) -> None:
        self.limit.skip()
        delivered.owned.outcomes.skip(record.position)
        # With ``acks_by_asking``, the next request marks the record as done.
        if not self.acks_by_asking:
            delivered.owned.ack(record.position)

    def _keep_back(self, delivered: DeliveredBatch, batch: Batch | None = None) -> None:
        """Take back the last record or a whole batch, to decode it again."""
        if batch is None:
            delivered.keep_back()
        else:
            delivered.keep_back_from(batch, 0)
        # The record counts as delivered if progress was updated during the decoding.
        delivered.owned.reduce_delivered(delivered.offsets[delivered.handed])
        self.sync_progress()


def make_delivery(
    clock: Clock, policy: DecodePolicy | None, *, acks_by_asking: bool
) -> RecordDelivery:
    """Return a delivery of records, which decodes them if there is a policy."""
    if policy is None:
        return RecordDelivery(clock, acks_by_asking=acks_by_asking)
    return DecodedDelivery(clock, policy, acks_by_asking=acks_by_asking)


async def decode_batch(
    decode: Callable[[Record], Awaitable[Record[Any] | None]],
    delivered: DeliveredBatch,
    batch: Batch,
    pause: Callable[[], Awaitable[None]],
    skip: Callable[[DeliveredBatch, Record], None],
    most_bytes: int,
) -> Batch[Any]:
    """Decode what was handed out, up to the first record whose error is raised.

    That record and those after it are taken back. If there is no record before it, it
    stays handed out, and its DecodeError is raised. As soon as data was decompressed to
    ``most_bytes``, the records after it are taken back, too. ``pause`` is awaited
    before each record. ``skip`` is called with the records for which ``decode`` returns
    None.
    """
    records: list[Record[Any]] = []
    most = DECOMPRESSED.total + most_bytes
    for index, record in enumerate(batch.records):
        if index and DECOMPRESSED.total >= most:
            delivered.keep_back_from(batch, index)
            break
        await pause()
        try:
            decoded = await decode(record)
        except DecodeError:
            delivered.keep_back_from(batch, index or 1)
            if index:
                break
            raise
        if decoded is not None:
            records.append(decoded)
        else:
            skip(delivered, record)
    return Batch(records, batch.millis_behind, delivered.owned.source)
