"""Read the pages of a shard for a reader that owns no shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from kinesumer.errors import ExpiredIteratorError, SourceUnavailableError
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Page, Record, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ports import StreamSource
from kinesumer.wire.aggregation import open_in_steps


async def _call(request: Callable[[], Awaitable[Page]]) -> Page:
    return await request()


class ShardPages:
    """The pages of one shard, from a place on.

    ``now`` is Kinesis's time, which LATEST needs. ``call`` makes a request for a page,
    and may repeat it. An answer without an iterator, although the shard is open, is a
    failure, unless ``believes_tip`` and the answer says that no record follows.
    """

    def __init__(
        self,
        source: StreamSource,
        key: ShardKey,
        after: Position | Start,
        now: float = 0.0,
        call: Callable[[Callable[[], Awaitable[Page]]], Awaitable[Page]] = _call,
        hash_keys: tuple[int, int] = (0, HASH_KEYS - 1),
        *,
        believes_tip: bool = False,
    ) -> None:
        self._source, self._key, self._call = source, key, call
        self._believes_tip = believes_tip
        self._page_source = Source(Fence(key, 0), *hash_keys)
        self._position = after
        self._began_at = now
        self._iterator: str | None = None

    async def next(self, limit: int) -> Page:
        """Return the next page. Raises the source's errors."""
        return await self._call(lambda: self._next(limit))

    async def first(self) -> Page:
        """Return a page with the next record, or an empty one at the end or tip."""
        page = await self.next(1)
        while not (page.records or page.is_at_tip):
            page = await self.next(1)
        return page

    async def _next(self, limit: int) -> Page:
        if self._iterator is None:
            self._iterator = await self._source.get_iterator(
                self._key.shard_id, self._position
            )
            if self._position == Start.LATEST:
                # Another iterator at LATEST would skip what arrived since this one.
                self._position = Start(type="AT_TIMESTAMP", timestamp=self._began_at)
        try:
            page = await self._source.get_records(self._iterator, limit)
        except ExpiredIteratorError:
            self._iterator = None
            # This empty page makes the caller read again: it is neither the end of the
            # shard nor its tip.
            return Page([], "", 1)
        if page.is_unconfirmed and not (self._believes_tip and page.is_at_tip):
            raise SourceUnavailableError(
                f"shard {self._key.shard_id} is open, but GetRecords returned no "
                "NextShardIterator"
            )
        self._iterator = page.next_iterator
        if page.records:
            self._position = Position(page.records[-1].sequence_number)
        return page

    async def opened(
        self, records: Sequence[Record]
    ) -> AsyncIterator[Sequence[Record]]:
        """Yield the user records of a page's records, with aggregates opened."""
        for step in open_in_steps(records, self._page_source):
            await asyncio.sleep(0)  # opening takes long: let other tasks run
            if step.opened.records:
                yield step.opened.records

    def restart(self) -> None:
        """Continue with the oldest record that the shard still has."""
        self._position, self._iterator = Start.TRIM_HORIZON, None
