"""Decode the records of work items before their handler gets them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from kinesumer.core.work_queue import MAX_AT_ONCE
from kinesumer.decoding.decoders import Decoder
from kinesumer.errors import DecodeError
from kinesumer.handlers.invokers import Gate
from kinesumer.handlers.shard_queue import WorkItem
from kinesumer.model.records import Record, decode_error
from kinesumer.ports import Clock
from kinesumer.runtime.decompression import DECOMPRESSED, DecompressionRoom


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

    async def __call__(self, item: WorkItem, stop: int) -> list[Record[Any]]:
        """Return the next records of an item, decoded, up to ``stop`` or earlier.

        Raises DecodeError if the next record, ``item.done``, cannot be decoded. Raises
        ShardStopped, and errors of the decoder of which no record is the cause.
        """
        self.release(item)
        first = item.done
        if not self._whole:
            stop = min(stop, first + MAX_AT_ONCE)
        decoded: list[Record[Any]] = []
        failed: dict[int, DecodeError] = {}
        began = self._clock.now()
        item.activity = "the decoder"
        try:
            for index in range(first, stop):
                if decoded and self._room.is_full:
                    break
                if self._clock.now() >= self._gate.due:
                    item.busy_since = None
                    await self._gate(item)
                item.busy_since = self._clock.now()
                before = DECOMPRESSED.total
                try:
                    decoded.append(await self._decode(item.records[index]))
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
        return decoded

    def release(self, item: WorkItem) -> None:
        """Give back the room of the records that an item had decoded."""
        self._count(item, -item.decompressed)

    def _count(self, item: WorkItem, decompressed: int) -> None:
        item.decompressed += decompressed
        self._room.take(decompressed)

    async def _decode(self, record: Record) -> Record[Any]:
        try:
            return await self._decoder.decode(record)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Only something that the decoder awaited was cancelled.
            raise decode_error(record, error) from error
