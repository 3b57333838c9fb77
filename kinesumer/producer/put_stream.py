"""The stream of a producer, and what the stream takes at present."""

from __future__ import annotations

import asyncio
import math
from functools import cache
from typing import TYPE_CHECKING, Protocol

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import stream_name
from kinesumer.runtime.failure_log import logger
from kinesumer.wire.put_records import refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.producer.patience import Patience
    from kinesumer.wire.put_records import Entry, EntryResult

# A program may try many records that the stream refuses. For each second of that, the
# stream is described once, since AWS allows an account 20 descriptions a second.
FRESH_SECONDS = 1.0


class PutTarget(Protocol):
    """What a producer needs of a stream. ``KinesisSource`` provides it."""

    async def describe(self) -> StreamInfo:
        """Return the stream's present description."""

    async def list_shards(self) -> Sequence[Shard]:
        """Return all shards."""

    async def put_records(self, records: Sequence[Entry]) -> Sequence[EntryResult]:
        """Put records. Raise RecordRefusedError if one of them is invalid."""


class PutStream:
    """A stream to put records into, with its latest description.

    The largest record and the strategy by which records are distributed may change at
    any time. ``by_key`` names the producer's options that AUTO makes void.
    """

    def __init__(
        self,
        target: PutTarget,
        info: StreamInfo,
        patience: Patience,
        by_key: Sequence[str] = (),
    ) -> None:
        self.info: StreamInfo = info
        self._target, self._patience, self._by_key = target, patience, by_key
        # The caller may have read the given description a while ago.
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._now = asyncio.get_running_loop().time
        self._warn()

    async def reread(self, since: float) -> StreamInfo:
        """Return the description as it was read at ``since``, or later.

        Raise SourceUnavailableError if Kinesis is unavailable for too long.
        """
        async with self._reading:
            if self._read_at < since:
                read_at = self._now()
                self.info = await self._patience.until_available(self._target.describe)
                self._read_at = read_at
                self._warn()
            return self.info

    async def list_shards(self) -> Sequence[Shard]:
        """Return all shards. Raise errors as ``reread()`` does."""
        return await self._patience.until_available(self._target.list_shards)

    async def put_records(self, entries: Sequence[Entry]) -> Sequence[EntryResult]:
        """Put records once. Raise RecordRefusedError, and SourceUnavailableError."""
        try:
            return await self._target.put_records(entries)
        except SourceUnavailableError as error:
            self._patience.note_failure(error)
            raise

    async def refusal(self, entry: Entry) -> str | None:
        """Return why the stream refuses a record at present, or None if it takes it."""
        if refusal(entry, self.info) is None:
            return None
        return refusal(entry, await self.reread(self._now() - FRESH_SECONDS))

    def _warn(self) -> None:
        if self._by_key and not self.info.routes_by_key:
            _warn_of_auto(self.info.arn, " and ".join(self._by_key))


@cache
def _warn_of_auto(arn: str, options: str) -> None:
    """Log each stream only once, since Spark makes a producer for each task."""
    logger.warning(
        "stream %s distributes records by AUTO, without regard to their keys: the "
        "producer's %s has no effect",
        stream_name(arn),
        options,
        extra={"stream": stream_name(arn)},
    )
