"""Carry out what ``core/delivery.py`` decides: the part that all loops share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from kinesumer.consuming.delivery_protocol import DeliveryProtocol, UserTask
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.watchdog import InFlightWork, task_stack
from kinesumer.core import handout
from kinesumer.core.backoff import CHECK_SECONDS
from kinesumer.core.delivery import (
    AwaitStored,
    Delivery,
    Finish,
    HandOver,
    NoteDue,
    Wait,
)
from kinesumer.core.handout import Loop
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.decoding.decoders import DECOMPRESSED, DecodePolicy
from kinesumer.errors import ConfigurationError, DecodeError
from kinesumer.model.batches import Batch, ColumnBatch
from kinesumer.model.decoded_records import with_values
from kinesumer.model.records import Record
from kinesumer.model.validation import require_arrow, require_flag
from kinesumer.ports import Clock
from kinesumer.runtime.clock import LoopLag, yield_to_loop
from kinesumer.telemetry.history import History

Handout = handout.Handout[OwnedShard]
# The value of a record that user code does not get.
SKIPPED: Final = object()


class DeliveryDriver(DeliveryProtocol):
    """Delivers batches to loops, as the machine decides.

    With a ``policy``, records are decoded right before user code gets them. A record
    whose DecodeError is raised counts as handed out, like a record that user code
    received. After any other error, or a cancellation, it is decoded again. After
    ``limit`` records, all loops end. Raises ConfigurationError for a limit below 1.
    """

    shares_loop: bool = True  # whether user code runs on the client's event loop

    def __init__(
        self,
        clock: Clock,
        *,
        acks_by_asking: bool,
        policy: DecodePolicy | None = None,
        limit: int | None = None,
        history: History | None = None,
    ) -> None:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigurationError(
                f"limit={limit!r} must be a number of records, at least 1"
            )
        self.machine: Delivery[OwnedShard] = Delivery(
            acks_by_asking=acks_by_asking, limit=limit
        )
        self.acks_by_asking = acks_by_asking
        self.history = history
        self._clock = clock
        self._policy = policy
        # The tasks that wait for a batch.
        self._waiting_tasks: list[UserTask | None] = []
        self._lag = LoopLag(clock.now, lambda: self.machine.busy_since)
        self._yield_at = 0.0

    # --- the engine's side ----------------------------------------------------------

    async def add_streams(
        self,
        streams: Iterable[OpenStream],
        handlers: Mapping[Any, object] | None = None,
    ) -> None:
        """Let the streams be read as the loops take them.

        Raises ConfigurationError if there are handlers, since iteration calls none.
        """
        if handlers is not None:
            raise ConfigurationError(
                "consume() calls no handlers: give refresh() only the streams"
            )

    def oldest_work(self) -> InFlightWork | None:
        """Return user code's work that began first, or None if it has no work."""
        works = [self._work(each) for each in list(self.machine.handouts)]
        oldest = min(filter(None, works), default=None, key=lambda work: work.since)
        since = self.machine.left_since
        if oldest is None and since is not None and not self._waiting_tasks:
            what = "the loop over records, whose task was cancelled or left it,"
            return InFlightWork(since, what, lambda: task_stack(None, self.thread))
        return oldest

    def _work(self, handout: Handout) -> InFlightWork | None:
        since, at = handout.busy_since, handout.shard.source
        if since is None:
            return None
        task = task_of(handout.loop)
        what = f"user code at {at.stream} {at.shard_id}"
        return InFlightWork(since, what, lambda: task_stack(task, self.thread))

    def is_in_use_beside(self, task: UserTask | None) -> bool:
        """Return whether a task other than ``task`` may have records."""
        loops = [self.machine.last, *(each.loop for each in self.machine.handouts)]
        tasks = [task_of(loop) for loop in loops]
        return any(t is not None and t is not task and not t.done() for t in tasks)

    def close(self, fatal: BaseException | None = None) -> None:
        """End the iteration, with StopAsyncIteration or with an error."""
        self.machine.close(fatal)
        self._carry_out()

    def reopen(self) -> None:
        """Allow iteration again, after a failed start closed it."""
        self.machine.reopen()

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has processed."""
        self.machine.sync_progress()
        self._carry_out()

    def has_records(self, owned: OwnedShard, *, waiting: bool) -> bool:
        """Return whether user code has records of a shard, or gets more of them."""
        return self.machine.has_records(owned, waiting=waiting)

    # --- the loops' side --------------------------------------------------------------

    def batch_kind(self, *, columns: bool) -> type[Batch]:
        """Return the kind of batches that a loop takes.

        Raises ConfigurationError for columns if pyarrow isn't installed.
        """
        require_flag("columns", columns)
        if not columns:
            return Batch
        require_arrow("batches(columns=True)")
        return ColumnBatch

    def ack_in_hand(self) -> None:
        """Acknowledge what user code has, unless commits are manual."""
        if not self.acks_by_asking:
            raise ConfigurationError(
                'ack=True has no meaning with Config(commit="manual"): use client.ack()'
            )
        self.machine.acked(self._clock.now())
        self._carry_out()

    async def _ask(
        self, loop: Loop, holder: object | None, task: UserTask | None
    ) -> Handout | None:
        """Finish a loop's last batch. Return its rest, the next, or None at the end."""
        self._waiting_tasks.append(task)
        try:
            self.machine.asked(loop, holder, self._clock.now())
            return await self._next(loop)
        except asyncio.CancelledError:
            self.machine.cancelled(self._clock.now())
            raise
        finally:
            self._waiting_tasks.remove(task)

    async def _next(self, loop: Loop) -> Handout | None:
        if self._parts is None:
            return None  # the client left before its start
        buffer = self._parts.buffer
        while True:
            await self._pause()
            action = self.machine.next(loop, buffer.turns, self._clock.now())
            self._carry_out()
            match action:
                case HandOver(handout):
                    return handout
                case Finish(None):
                    return None
                case Finish(BaseException() as error):
                    raise error
                case Wait.BATCH:
                    await self._take_in(buffer)
                case Wait.LEASE:
                    self.sync_progress()
                    await asyncio.sleep(CHECK_SECONDS)
                case NoteDue(shard):
                    if shard.suspects is not None:
                        await shard.suspects.note_due()
                case AwaitStored(shard):
                    if await shard.all_stored(CHECK_SECONDS):
                        await asyncio.sleep(0)  # let the reader run, to end the turn

    async def _take_in(self, buffer: PrefetchBuffer) -> None:
        waits = buffer.is_empty
        if (batch := await buffer.get()) is not None:
            self.machine.arrived(batch)
        if waits:  # other tasks have run during the wait
            self._yield_at = self._clock.now() + TURN_SECONDS

    async def _pause(self) -> None:
        """Let other tasks run if that is due."""
        if self.shares_loop and self._clock.now() >= self._yield_at:
            await yield_to_loop(self._lag.seconds())
            self._yield_at = self._clock.now() + TURN_SECONDS

    def _carry_out(self) -> None:
        """Carry out the machine's effects. Before ``connect()`` there are none."""
        if self._parts is not None:
            self._parts.carry_out(self.machine.take_effects())

    # --- decoding ---------------------------------------------------------------------

    async def _value(self, record: Record) -> Any:
        """Return a record's value, or SKIPPED if the record counts as done."""
        assert self._policy is not None
        assert self._parts is not None
        decoder = self._policy.decoder
        try:
            if decoder.may_await:
                return await decoder.decode(record)
            return decoder.decode_now(record)
        except DecodeError as error:
            await self._policy.skip(self._parts.telemetry, record, error)
            return SKIPPED

    async def _decoded(self, handout: Handout, record: Record) -> Record[Any] | None:
        """Return a decoded record. None if user code doesn't get the record now."""
        try:
            value = await self._value(record)
        except DecodeError:
            raise
        except BaseException:
            self._keep_back(handout)
            raise
        # An async decoder may take longer than the lease.
        if not self._is_permitted(handout):
            self._keep_back(handout)
            return None
        if value is SKIPPED:
            self._skip(handout, record)
            return None
        return record.with_value(value)

    async def _decoded_batch(self, handout: Handout, batch: Batch) -> Batch[Any]:
        """Return a decoded batch. It is empty if user code gets none of its records."""
        records: Sequence[Record[Any]] = ()
        try:
            records = await self._decoded_records(handout, batch)
        except DecodeError:
            raise
        except BaseException:
            self._keep_back(handout, batch)
            raise
        if not self._is_permitted(handout):
            self._keep_back(handout, batch)
            records = ()
        return handout.batch.for_user(records, type(batch))

    async def _decoded_records(
        self, handout: Handout, batch: Batch
    ) -> Sequence[Record[Any]]:
        """Decode what was handed out, up to the first record whose error is raised.

        That record and those after it are taken back. If there is no record before it,
        it stays handed out, and its DecodeError is raised. As soon as data was
        decompressed to the buffer's limit, the records after it are taken back, too.
        """
        assert self._parts is not None
        most = DECOMPRESSED.total + self._parts.buffer.limit
        values: list[object] = []
        skipped: set[int] = set()
        for index, record in enumerate(batch.records):
            if index and DECOMPRESSED.total >= most:
                self._keep_back(handout, batch, index)
                break
            if self._clock.now() >= self._yield_at:
                await self._pause()
            try:
                value = await self._value(record)
            except DecodeError:
                self._keep_back(handout, batch, index or 1)
                if index:
                    break
                raise
            if value is SKIPPED:
                self._skip(handout, record)
                skipped.add(index)
            else:
                values.append(value)
        return with_values(batch.records, values, skipped)

    def _is_permitted(self, handout: Handout) -> bool:
        owned = handout.shard
        return owned.lease.permits(self._clock.now()) and not owned.revoked

    def _keep_back(
        self, handout: Handout, batch: Batch | None = None, index: int = 0
    ) -> None:
        """Take back the last record, or a batch from an index, to hand it out again."""
        handout.keep_back(batch, index)
        self.sync_progress()

    def _skip(self, handout: Handout, record: Record) -> None:
        """Count a record as done that user code doesn't get."""
        self.machine.skipped()
        if self.history is not None:
            self.history.given_up(record)
        handout.shard.outcomes.skip(record.position)
        if not self.acks_by_asking:  # else the next request marks it as done
            self._ack(handout.shard, record)

    def _ack(self, owned: OwnedShard, record: Record) -> None:
        owned.ack(record)


def task_of(loop: Loop | None) -> UserTask | None:
    """Return the task that received a loop's last record, as far as this is known."""
    if loop is None:
        return None
    runs_in = cast("UserTask | None", loop.runs_in)
    is_over = runs_in is None or runs_in.done()
    return cast("UserTask | None", loop.called_by) if is_over else runs_in
