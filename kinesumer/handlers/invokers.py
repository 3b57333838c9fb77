"""Decode records, and call handlers with them, in the event loop or in a thread."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kinesumer.core.backoff import CHECK_SECONDS
from kinesumer.core.turns import TURN_SECONDS, Turns
from kinesumer.core.work_queue import MAX_AT_ONCE
from kinesumer.decoding.decoders import DECOMPRESSED, Decoder, DecompressionRoom
from kinesumer.errors import ConfigurationError, DecodeError
from kinesumer.handlers.handler_function import HandlerFunction
from kinesumer.handlers.shard_queue import ShardQueue, ShardStopped, WorkItem
from kinesumer.model.decoded_records import with_values
from kinesumer.model.records import Record, decode_error
from kinesumer.ports import Clock
from kinesumer.runtime.clock import LoopLag, yield_to_loop
from kinesumer.runtime.threads import NotCalledError, Threads


class NotAwaitedError(ConfigurationError):
    """A handler that isn't async returned an awaitable."""


class Gate:
    """Delays user code until the lease is valid and other tasks have had time.

    User code pauses regularly, so that other tasks of the event loop can run.

    The queues of all shards pause together, and then take turns. If each queue paused
    by itself, the handlers of all shards could run in one step of the event loop.
    """

    def __init__(self, clock: Clock, busy_since: Callable[[], float | None]) -> None:
        """``busy_since`` returns when the running handler began, or None."""
        # The time of the next pause. From then on, user code has to wait for it.
        self.due: float = 0.0
        self._clock = clock
        self._lag = LoopLag(clock.now, busy_since)
        self._waiting: Turns[ShardQueue, asyncio.Future[None]] = Turns()
        self._pausing: asyncio.Task[None] | None = None

    async def __call__(self, item: WorkItem) -> None:
        """Wait until the lease is valid and no pause is due. Raises ShardStopped."""
        queue, lease = item.queue, item.queue.owned.lease
        while True:
            # A call that comes while others wait must not overtake them.
            if self._waiting or self._clock.now() >= self.due:
                await self._wait_turn(queue)
            # The shard may have been given up during the pause.
            if queue.work.is_over:
                raise ShardStopped
            if lease.permits(self._clock.now()):
                self._waiting.begin(queue)
                return
            await queue.sleep(CHECK_SECONDS)

    async def _wait_turn(self, queue: ShardQueue) -> None:
        """Wait until the caller's turn after a pause."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.put(queue, future)
        if self._pausing is None or self._pausing.done():
            self._pausing = loop.create_task(self._pause())
        await future

    async def _pause(self) -> None:
        while self._waiting:
            await yield_to_loop(self._lag.seconds())
            self._lag.start()
            self.due = self._clock.now() + TURN_SECONDS
            while self._waiting and self._clock.now() < self.due:
                _, future = self._waiting.take()
                if not future.done():
                    future.set_result(None)
                    await asyncio.sleep(0)  # let the handler run


@dataclass(frozen=True)
class RecordDecoding:
    """Decodes records in the event loop, in order, right before a handler's call.

    The work item keeps its records as they are. If a call is repeated, its records are
    decoded again, so a handler never gets a value that a failed call has changed.
    """

    _decoder: Decoder
    _gate: Gate
    _clock: Clock
    # Whether the handler takes batches.
    _whole: bool
    # Whether the records that cannot be decoded are taken out of a batch, and given up
    # first. Otherwise a batch ends before such a record.
    _takes_out: bool
    # What the decoded records of all items may be decompressed to. While it is full,
    # an item gets one record at a time.
    _room: DecompressionRoom

    async def __call__(self, item: WorkItem, stop: int) -> Sequence[Record[Any]]:
        """Return the next records of an item, decoded, up to ``stop`` or earlier.

        Raises DecodeError if the next record, ``item.done``, cannot be decoded. Raises
        ShardStopped, and errors of the decoder of which no record is the cause.
        """
        self.release(item)
        first = item.done
        if not self._whole:
            stop = min(stop, first + MAX_AT_ONCE)
        values: list[object] = []
        failed: dict[int, DecodeError] = {}
        began = self._clock.now()
        item.activity = "the decoder"
        try:
            for index, record in enumerate(item.records[first:stop], first):
                if values and self._room.is_full:
                    break
                if self._clock.now() >= self._gate.due:
                    item.busy_since = None
                    await self._gate(item)
                item.busy_since = self._clock.now()
                before = DECOMPRESSED.total
                try:
                    values.append(await self._value(record))
                except DecodeError as error:
                    failed[index] = error
                    if index == first or not self._takes_out:
                        break
                finally:
                    self._count(item, DECOMPRESSED.total - before)
        finally:
            item.busy_since, item.activity = None, "user code"
            item.seconds += self._clock.now() - began
        if failed and self._takes_out and first not in failed:
            item.move_forward(list(failed), stop)
            raise next(iter(failed.values()))
        if first in failed:
            raise failed[first]
        return with_values(item.records[first:stop], values)

    def release(self, item: WorkItem) -> None:
        """Give back the room of the records that an item had decoded."""
        self._count(item, -item.decompressed)

    def _count(self, item: WorkItem, decompressed: int) -> None:
        item.decompressed += decompressed
        self._room.take(decompressed)

    async def _value(self, record: Record) -> Any:
        if not self._decoder.may_await:
            return self._decoder.decode_now(record)
        try:
            return await self._decoder.decode(record)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Only something that the decoder awaited was cancelled.
            raise decode_error(record, error) from error


class HandlerInvoker:
    """Gives records to a handler, in the event loop or in a thread."""

    def __init__(
        self, handler: HandlerFunction, clock: Clock, gate: Gate, threads: Threads
    ) -> None:
        self._handler, self._now = handler.call, clock.now
        self._is_async, self._takes_batches = handler.is_async, handler.takes_batches
        self._kind = handler.batch_kind
        self._gate, self._threads = gate, threads

    async def __call__(self, item: WorkItem, records: Sequence[Record[Any]]) -> None:
        """Handle an item's next records, and count them as done.

        It may return early if the lease has lapsed, the shard is given up or a pause
        is due. Raises the handler's error.
        """
        if not self._is_async:
            is_batch = self._takes_batches
            work = self._call_with_batch if is_batch else self._call_with_each
            await self._in_thread(partial(work, item, records), item)
        elif self._takes_batches:
            item.busy_since = began = self._now()
            await self._handler(item.batch.for_user(records, self._kind))
            item.done += len(records)
            item.seconds += self._now() - began
        else:
            await self._await_each(item, records)

    async def _await_each(self, item: WorkItem, records: Sequence[Record[Any]]) -> None:
        now, handler, gate = self._now, self._handler, self._gate
        work, lease = item.queue.work, item.queue.owned.lease
        began = now()
        for record in records:
            at = now()
            # End the call. Before the next call handles the rest, the gate waits.
            if at >= lease.deadline or at >= gate.due or work.is_over:
                break
            item.busy_since = at
            await handler(record)
            item.done += 1
        item.seconds += now() - began

    async def _in_thread(self, work: Callable[[], None], item: WorkItem) -> None:
        def run() -> None:
            item.thread = threading.get_ident()
            work()

        try:
            await self._threads.call(run, lambda: item.queue.work.is_over)
        except NotCalledError:
            return  # the shard is given up

    def _call_with_each(self, item: WorkItem, records: Sequence[Record[Any]]) -> None:
        now, handler = self._now, self._handler
        work, lease = item.queue.work, item.queue.owned.lease
        began = now()
        ends_at = began + TURN_SECONDS
        for record in records:
            at = now()
            # End the call. The next call waits behind the calls of other shards that
            # have no thread.
            if at >= lease.deadline or at >= ends_at or work.is_over:
                break
            item.busy_since = at
            refuse_awaitable(handler(record))
            item.done += 1
        item.seconds += now() - began

    def _call_with_batch(self, item: WorkItem, records: Sequence[Record[Any]]) -> None:
        """Call the handler, if the lease is still valid when the thread starts."""
        item.busy_since = began = self._now()
        if item.queue.owned.lease.permits(began) and not item.queue.work.is_over:
            refuse_awaitable(self._handler(item.batch.for_user(records, self._kind)))
            item.done += len(records)
            item.seconds += self._now() - began


def refuse_awaitable(result: Any) -> None:
    """Raise NotAwaitedError if a function that isn't async returned an awaitable."""
    if result is None or not inspect.isawaitable(result):
        return
    if inspect.iscoroutine(result):
        result.close()
    raise NotAwaitedError(
        "the handler is a plain function that returned an awaitable, so nothing was "
        "done: write it with `async def`"
    )
