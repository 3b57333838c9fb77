"""Hands records to user code: what ``consume()`` returns, and what is done of it.

A record is handed out only while the lease permits it, checked right before each one.
"""

from __future__ import annotations

import asyncio
import threading
from operator import length_hint
from typing import TYPE_CHECKING, Protocol, cast

from kinesumer.buffer import data_bytes
from kinesumer.errors import ConfigurationError
from kinesumer.watchdog import Work, Worker, task_stack

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
    )
    from types import AsyncGeneratorType

    from kinesumer.aws.session import Clients
    from kinesumer.buffer import Batch, Buffer
    from kinesumer.holding import Holding
    from kinesumer.model import Record
    from kinesumer.ports import Clock
    from kinesumer.streams import OpenStream
    from kinesumer.telemetry import Telemetry

PAUSE_SECONDS = 0.05
BREATH_SECONDS = 0.05
"""User code that never awaits lets the event loop run this often all the same: else
nothing is committed or handed over before the end of a batch."""
BREATH_STEPS = 10
"""Steps of the loop each time: enough to take in an answer and send what follows."""


class Taker(Worker, Protocol):
    """Takes batches out of the buffer, brings them to user code, knows what is done."""

    asker: asyncio.Task[object] | None
    """The task that takes: if it has ended, nothing of it is in user code's hands."""

    def connect(
        self, buffer: Buffer, hurry: Callable[[], None], telemetry: Telemetry
    ) -> None:
        """Say where batches come from, and whom to tell that much was done.

        It is called on the client's event loop.
        """
        ...

    async def open(self, clients: Clients) -> None:
        """Open what user code's records may need, before anything is read."""
        ...

    def look_at(self, streams: Iterable[OpenStream]) -> None:
        """Warn of streams that can't be consumed as the user means to."""
        ...

    def close(self, fatal: BaseException | None = None) -> None:
        """Give user code nothing more; end with the error that says why, if any."""
        ...

    def take_stock(self) -> None:
        """Bring the holdings of what is at hand up to date."""
        ...


class Delivery:
    """The batch that user code is at, and how far it is in it."""

    def __init__(self, clock: Clock, *, marks_by_asking: bool) -> None:
        self.busy_since: float | None = None
        """Since when user code has had the record that it has; None if it waits."""
        self._left_since: float | None = None
        """Since when nobody asks: who did was cancelled while waiting."""
        self.asker: asyncio.Task[object] | None = None
        """The task that asked last: user code runs there."""
        self.thread = 0
        self.records = 0
        """Records handed out in batches that are over."""
        self._clock = clock
        self._buffer: Buffer | None = None
        self._hurry: Callable[[], None]
        self._telemetry: Telemetry
        self._auto = marks_by_asking
        self._batch: Batch | None = None
        self._base = 0
        self._ahead: Iterator[Record] = iter([])
        """The batch's records to come; what it has left tells how far we are, so that
        nothing needs to be counted per record."""
        self._held_back = 0
        """1 while a record taken from there isn't permitted yet."""
        self._in_hand = 0
        self._told = 0
        self._is_asked = False
        self._closed = False
        self._fatal: BaseException | None = None

    def connect(
        self, buffer: Buffer, hurry: Callable[[], None], telemetry: Telemetry
    ) -> None:
        """Say where batches come from, and whom to tell that much was done."""
        self._buffer, self._hurry, self._telemetry = buffer, hurry, telemetry
        self.thread = threading.get_ident()

    async def open(self, clients: Clients) -> None:
        """Nothing is needed."""

    def look_at(self, streams: Iterable[OpenStream]) -> None:
        """One record after the other can be had of any stream."""

    def oldest_work(self) -> Work | None:
        """Return the record or batch that user code is at; None if it waits."""
        since, asker, batch = self.busy_since, self.asker, self._batch
        if since is None and self._left_since is not None:
            what = "the loop over records, whose task was cancelled,"
            return Work(self._left_since, what, lambda: task_stack(None, self.thread))
        if since is None:
            return None
        at = batch.holding.source if batch is not None else None
        what = f"user code at {at.stream} {at.shard_id}" if at else "user code"
        return Work(since, what, lambda: task_stack(asker, self.thread))

    def close(self, fatal: BaseException | None = None) -> None:
        """End the iteration: by StopAsyncIteration, or by the error that says why."""
        self._closed = True
        self._fatal = self._fatal or fatal
        if self._buffer is not None:
            self._buffer.wake()

    def take_stock(self) -> None:
        """Bring the holding of the batch at hand up to date."""
        if self._batch is None:
            return
        holding, handed = self._batch.holding, self._handed(self._batch)
        holding.hand_out(self._base + handed)
        if self._auto:
            done = max(0, handed - self._in_hand)
            holding.progress.done_through(self._base + done)
        if handed > self._told:
            size = data_bytes(self._batch, self._told, handed)
            new, self._told = handed - self._told, handed
            self._telemetry.processed(self._batch.stream_arn, new, size)

    async def each(
        self, start: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[Record, None]:
        """Start, then yield records; being resumed marks the one before as done."""
        await start()
        now = self._clock.now
        self._in_hand = 0
        while (batch := await self._next()) is not None:
            holding, lease = batch.holding, batch.holding.lease
            self._ahead, self._held_back = iter(self._rest(batch)), 0
            self._in_hand = 1
            breathe_at = now() + BREATH_SECONDS
            for record in self._ahead:
                moment = now()
                if moment >= lease.deadline or holding.revoked or moment >= breathe_at:
                    self._in_hand, self._held_back = 0, 1
                    if not (await self._breathe() and await self._permitted(holding)):
                        break
                    self._in_hand, self._held_back, moment = 1, 0, now()
                    breathe_at = moment + BREATH_SECONDS
                self.busy_since = moment
                yield record
            self._in_hand = 0

    async def next_batch(self) -> Batch | None:
        """Return the next batch, whole; asking for it marks the one before as done."""
        if self._is_asked and self._auto:
            raise ConfigurationError(
                "two tasks iterate over batches(): asking for a batch marks the one "
                "before as done, whoever has it in hand. Let one task iterate, use "
                'run(), or Config(commit="manual")'
            )
        self._is_asked = True
        try:
            return await self._next_batch()
        finally:
            self._is_asked = False

    async def _next_batch(self) -> Batch | None:
        self._in_hand = 0
        while (batch := await self._next()) is not None:
            if batch.records and await self._permitted(batch.holding):
                rest = batch.with_records(self._rest(batch))
                self._ahead, self._held_back = iter([]), 0
                self._in_hand = len(rest)
                self.busy_since = self._clock.now()
                return rest
        return None

    def _handed(self, batch: Batch) -> int:
        """Return how many of the records of the batch at hand were handed out."""
        return len(batch) - length_hint(self._ahead) - self._held_back

    def _rest(self, batch: Batch) -> list[Record]:
        handed = self._handed(batch)
        return batch.records[handed:] if handed else batch.records

    async def _next(self) -> Batch | None:
        """Leave the batch at hand and wait for one that may be delivered.

        What the last one to ask left of its batch, when it was cancelled or closed,
        comes first.
        """
        self.asker, self._left_since = asyncio.current_task(), None
        batch = self._batch
        if batch is not None and self._handed(batch) < len(batch) and not self._closed:
            if not batch.holding.revoked:
                return batch
        self._leave()
        while not self._closed:
            assert self._buffer is not None
            try:
                batch = await self._buffer.get()
            except asyncio.CancelledError:
                self._left_since = self._clock.now()
                raise
            if batch is None:
                continue
            if batch.holding.revoked:
                self._buffer.give_back(batch.holding, batch.size)
                continue
            self._base = batch.holding.progress.deliver(batch.records, batch.end)
            self._batch, self._ahead = batch, iter(batch.records)
            self._held_back = self._in_hand = self._told = 0
            return batch
        if self._fatal is not None:
            raise self._fatal
        return None

    def _leave(self) -> None:
        self.busy_since = None
        batch = self._batch
        if batch is None:
            return
        self.take_stock()
        self.records += self._handed(batch)
        self._batch, self._ahead = None, iter([])
        assert self._buffer is not None
        self._buffer.give_back(batch.holding, batch.size)
        if batch.holding.wants_commit:
            self._hurry()

    async def _breathe(self) -> bool:
        """Let the other tasks run; False if the iteration was closed meanwhile."""
        self.busy_since = None
        for _ in range(BREATH_STEPS):
            await asyncio.sleep(0)
        return not self._closed

    async def _permitted(self, holding: Holding) -> bool:
        """Wait while the lease has lapsed; False if the shard isn't ours any more."""
        self.busy_since = None
        while not (holding.revoked or self._closed):
            if holding.lease.permits(self._clock.now()):
                return True
            self.take_stock()
            await asyncio.sleep(PAUSE_SECONDS)
        self.take_stock()
        return False


class Records:
    """What ``consume()`` returns: an async iterator of records, or of ``batches()``.

    It may be left and iterated again; asking for the next record marks the one before
    as done (``commit="auto"``). One task at a time.
    """

    def __init__(
        self, delivery: Delivery, start: Callable[[], Awaitable[None]]
    ) -> None:
        self._delivery = delivery
        self._start = start
        self._generator: AsyncGeneratorType[Record, None] | None = None

    def __aiter__(self) -> AsyncIterator[Record]:
        # The generator itself is what is iterated: nothing is faster per record.
        if self._generator is None or self._generator.ag_frame is None:
            generator = self._delivery.each(self._start)
            self._generator = cast("AsyncGeneratorType[Record, None]", generator)
        return self._generator

    async def __anext__(self) -> Record:
        return await anext(aiter(self))

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Iterate over batches: many records of one shard, in order, with its lag.

        Asking for the next batch marks all of the one before as done. Raises
        ConfigurationError if another task waits for one.
        """
        await self._start()
        while (batch := await self._delivery.next_batch()) is not None:
            yield batch
