"""Call the record processor of one shard, on a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from kinesumer.core.backoff import Backoff
from kinesumer.errors import KinesumerError
from kinesumer.kclpy.checkpointer import Checkpointer, Phase
from kinesumer.kclpy.messages import (
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    Record,
    ShardEndedInput,
    ShutdownRequestedInput,
)
from kinesumer.kclpy.processor import Processor, as_v3
from kinesumer.model import records
from kinesumer.model.batches import Batch
from kinesumer.model.owned import AssignedShard
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.threads import Threads


class Input(Protocol):
    """The argument of a record processor's method."""

    action: str


T = TypeVar("T", bound=Input)
# Between two calls of shard_ended() that made no checkpoint. The first wait is that of
# the KCL (taskBackoffTimeMillis).
END_BACKOFF = Backoff(0.5, 4.0)
# The KCL calls without end. Chosen: a state store that throttles has some ten seconds.
END_CALLS = 5


class ShardNotEndedError(KinesumerError):
    """A record processor made no checkpoint in ``shard_ended()``, in any of its calls.

    The children of the shard can't be processed, and its next owner calls it again.
    """


class ShardProcessor:
    """The record processor of a shard in one epoch.

    An error of the processor is logged, and the processor goes on, as with the KCL.
    SystemExit is passed on.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        shard: AssignedShard,
        start: str,
        checkpointer: Checkpointer,
    ) -> None:
        """``start`` is where the shard is read from if it has no position."""
        self.checkpointer = checkpointer
        self._factory, self._shard, self._start = factory, shard, start
        # Processors of amazon_kclpy have one thread, on which some libraries insist.
        self._thread = Threads(1, f"kclpy-{shard.shard_id}")
        self._processor: Processor
        self._calls = self._millis_behind = 0

    async def initialize(self) -> None:
        """Create the processor, and call ``initialize()``.

        Raises the constructor's errors, and ConfigurationError if it is no processor.
        """
        position = self._shard.fence.position
        given = InitializeInput(self._shard.shard_id, self._start, 0)
        if position is not None:
            given.sequence_number = position.sequence_number
            given.sub_sequence_number = position.sub_sequence_number or 0
        try:
            self._processor = await self._thread.call(lambda: as_v3(self._factory()))
        except BaseException:
            self.close()
            raise
        await self._call(self._processor.initialize, given)

    async def process(self, batch: Batch) -> None:
        """Call ``process_records()``."""
        self._calls, self._millis_behind = self._calls + 1, batch.millis_behind
        self.checkpointer.delivering(batch.records[-1].position)
        await self._thread.call(partial(self._process, batch.records))

    async def process_nothing(self, seconds: float) -> None:
        """Call ``process_records()`` whenever so long no records came, until cancelled.

        Processors store then what they have collected.
        """
        while True:
            before = self._calls
            await asyncio.sleep(seconds)
            if before == self._calls:
                await self._thread.call(partial(self._process, ()))

    async def end(self) -> None:
        """Call ``shard_ended()`` until it has checkpointed, or the shard is lost.

        Raises ShardNotEndedError if it doesn't.
        """
        self.checkpointer.shard_ended()
        given = ShardEndedInput(self.checkpointer)
        for calls in range(1, END_CALLS + 1):
            await self._call(self._processor.shard_ended, given)
            if self.checkpointer.phase is not Phase.SHARD_ENDED:
                return
            logger.warning(
                "%s %s: shard_ended() of the record processor made no checkpoint",
                self._shard.stream,
                self._shard.shard_id,
            )
            await asyncio.sleep(END_BACKOFF.limit_seconds(calls))
        raise ShardNotEndedError(
            f"{self._shard.stream} {self._shard.shard_id}: shard_ended() of the record "
            f"processor made no checkpoint in {END_CALLS} calls, so the shard's "
            "children wait for it: call its input's checkpointer.checkpoint(), or "
            'with version 1 and 2 that of shutdown() if the reason is "TERMINATE"'
        )

    async def give_up(self) -> None:
        """Call ``shutdown_requested()`` while the shard is owned, then ``lose()``."""
        given = ShutdownRequestedInput(self.checkpointer)
        await self._call(self._processor.shutdown_requested, given)
        await self.lose()

    async def lose(self) -> None:
        """Refuse checkpoints, and call ``lease_lost()``."""
        self.checkpointer.close()
        await self._call(self._processor.lease_lost, LeaseLostInput())

    def close(self) -> None:
        """Refuse checkpoints, and end the thread after the call that it makes."""
        self.checkpointer.close()
        self._thread.close()

    def _process(self, batch: Sequence[records.Record]) -> None:
        given = ProcessRecordsInput(
            [*map(Record, batch)], self._millis_behind, self.checkpointer
        )
        self._guarded(self._processor.process_records, given)

    async def _call(self, method: Callable[[T], object], given: T) -> None:
        await self._thread.call(partial(self._guarded, method, given))

    def _guarded(self, method: Callable[[T], object], given: T) -> None:
        try:
            method(given)
        except Exception:
            logger.exception(
                "%s %s: the record processor failed at %s, and goes on",
                self._shard.stream,
                self._shard.shard_id,
                given.action,
            )
