"""Consume a stream by record processors of amazon_kclpy, one for each shard."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, wait
from functools import partial
from typing import Any

from kinesumer.client import Kinesumer
from kinesumer.consuming.assignment_callbacks import read_callbacks
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.errors import StoreThrottledError, StoreUnavailableError
from kinesumer.handlers.handler import read_handlers
from kinesumer.handlers.runner import HandlerRunner
from kinesumer.kclpy.checkpointer import Checkpointer, CheckpointError, Place
from kinesumer.kclpy.shard_processor import ShardProcessor
from kinesumer.model.batches import Batch
from kinesumer.model.owned import AssignedShard, RevokeReason
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Record
from kinesumer.model.streams import Start, Stream
from kinesumer.runtime.failure_log import RepeatedLines, logger

# How often a thread that waits for an answer looks whether the event loop still exists.
LOOK_SECONDS = 1.0
# Their positions take 100 to 200 MB. Chosen: a processor that checkpoints each minute
# gets fewer, even if the records are small.
MANY_RECORDS = 1_000_000


class ProcessorClient(Kinesumer):
    """A client whose records go to record processors, which make all checkpoints.

    Its ``config`` must have ``commit="manual"``. The arguments are those of
    ``Kinesumer``.
    """

    def __init__(self, app: str, **options: Any) -> None:
        super().__init__(app, **options)
        self._processors: dict[Fence, ShardProcessor] = {}
        # The records that aren't checkpointed; empty unless a history is written.
        self._undone: dict[Fence, deque[Position]] = {}
        self._factory: Callable[[], Any]
        self._loop: asyncio.AbstractEventLoop
        self._runner: HandlerRunner
        # Calls processors that get no records.
        self._idle_seconds: float | None = None
        self._idling: dict[Fence, asyncio.Task[None]] = {}
        self._lines = RepeatedLines()

    async def run_processors(
        self,
        factory: Callable[[], Any],
        stream: Stream,
        start: Start,
        *,
        idle_seconds: float | None = None,
    ) -> None:
        """Call a processor that ``factory`` makes for each shard, until the end.

        With ``idle_seconds``, processors are called without records, too, after so long
        without any.

        Raises what ``Kinesumer.run()`` raises, ShardNotEndedError, and errors of
        ``factory``.
        """
        self._factory, self._idle_seconds = factory, idle_seconds
        self._loop = asyncio.get_running_loop()
        handlers = read_handlers(stream, self._handle, {"batch": True})
        checked, position, _ = self._lifecycle.check(handlers.streams, start, None)
        self._runner = HandlerRunner(
            handlers,
            app=self.app,
            clock=self._ports.clock,
            random=self._ports.random,
            drain=self.config.drain_timeout_seconds,
            callbacks=read_callbacks(self._assign, self._revoke, in_threads=True),
            history=self._ports.history,
            acks_by_return=False,
        )
        starter = self._lifecycle.prepare(self._runner, checked, position)
        await self._lifecycle.run(self._runner.run(starter))

    async def _assign(self, shard: AssignedShard) -> None:
        fence = shard.fence.at(None)
        owned = self._find(fence)
        start = Start.TRIM_HORIZON if owned is None else owned.row.start
        store = partial(self._store_from_thread, fence)
        checkpointer = Checkpointer(store, shard.fence.position)
        processor = ShardProcessor(self._factory, shard, start.type, checkpointer)
        await processor.initialize()
        self._processors[fence] = processor
        if (seconds := self._idle_seconds) is not None:
            idling = asyncio.create_task(self._call_when_idle(processor, seconds))
            self._idling[fence] = idling

    async def _call_when_idle(self, processor: ShardProcessor, seconds: float) -> None:
        try:
            await processor.process_nothing(seconds)
        except (SystemExit, KeyboardInterrupt) as error:
            self._runner.close(error)  # raising it would end the event loop

    async def _handle(self, batch: Batch) -> None:
        fence = batch.fence.at(None)
        if self._ports.history is not None:
            undone = self._undone.setdefault(fence, deque())
            undone.extend(record.position for record in batch.records)
        await self._processors[fence].process(batch)
        self._warn_without_checkpoints(fence)

    async def _revoke(self, shard: AssignedShard, reason: RevokeReason) -> None:
        fence = shard.fence.at(None)
        processor = self._processors.pop(fence)
        if (idling := self._idling.pop(fence, None)) is not None:
            idling.cancel()
        try:
            if reason == "ended":
                await processor.end()
            elif reason in ("lost", "seeked"):
                await processor.lose()
            else:
                await processor.give_up()
        finally:
            processor.close()
            self._undone.pop(fence, None)

    def _warn_without_checkpoints(self, fence: Fence) -> None:
        owned, limit = self._find(fence), self.config.max_uncommitted_records
        if owned is None or owned.progress.uncommitted < min(limit / 2, MANY_RECORDS):
            return
        stream, shard_id = owned.source.stream, owned.source.shard_id
        if self._lines.is_due(shard_id, self._ports.clock.now()):
            logger.warning(
                "%s %s: the record processor got %d records since its last checkpoint, "
                "and the shard is not read beyond %d: let it checkpoint more often, or "
                "raise the property kinesumer.max_uncommitted_records",
                stream,
                shard_id,
                owned.progress.uncommitted,
                limit,
                extra=owned.log_fields,
            )

    # --- checkpoints ------------------------------------------------------------------

    def _store_from_thread(self, fence: Fence, position: Position) -> None:
        """Store a position on the client's event loop. Raises CheckpointError."""
        storing = self._store(fence, position)
        try:
            future = asyncio.run_coroutine_threadsafe(storing, self._loop)
        except RuntimeError:  # the loop is closed
            storing.close()
            raise CheckpointError("ShutdownException") from None
        while not wait([future], LOOK_SECONDS).done:
            if self._loop.is_closed():
                raise CheckpointError("ShutdownException")
        try:
            future.result()
        except StoreThrottledError as error:
            raise CheckpointError("ThrottlingException") from error
        except StoreUnavailableError as error:
            name = "KinesisClientLibDependencyException"
            raise CheckpointError(name) from error
        except CancelledError:  # the client has ended
            raise CheckpointError("ShutdownException") from None

    async def _store(self, fence: Fence, position: Position) -> None:
        owned = self._find(fence)
        if owned is None or not owned.can_store:
            raise CheckpointError("ShutdownException")
        self._note_done(owned, position)
        owned.ack_through(position)
        await self._lifecycle.running().checkpointer.commit_one(owned)
        if not owned.can_store:
            raise CheckpointError("ShutdownException")

    def _find(self, fence: Fence) -> OwnedShard | None:
        """Return the shard if this client still owns it in this epoch."""
        for owned in self._lifecycle.running().owned_shards():
            if owned.source.fence == fence:
                return owned
        return None

    def _note_done(self, owned: OwnedShard, position: Position) -> None:
        """Write to the history which records are done up to a position."""
        undone, last = self._undone.get(owned.source.fence), Place.of(position)
        done: list[Record] = []
        while undone and Place.of(undone[0]) <= last:
            number, index = undone.popleft()
            done.append(Record(number, b"", sub_sequence_number=index))
        if done and self._ports.history is not None:
            self._ports.history.done(Batch(done, 0, owned.source))
