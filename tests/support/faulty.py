"""A state store and sources of records that fail when a test says so."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from kinesumer.errors import (
    ExpiredIteratorError,
    SourceUnavailableError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import Key, Row
from kinesumer.model.streams import Shard, Start, StreamInfo
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.memory import MemorySource, MemoryStore

T = TypeVar("T")


class FaultyStore:
    """A state store that fails when the test says so, and keeps all writes."""

    def __init__(self, table: MemoryStore) -> None:
        self.table = table
        self.down = False  # nothing arrives
        self.latency = 0.001
        self.sent: list[Write] = []
        self.queried: list[str] = []  # the partition of each query
        self._spoiled: list[tuple[str, str]] = []

    def spoil(self, how: str, attribute: str) -> None:
        """Spoil the next write that sets (or removes) an attribute.

        A ``lost`` write never arrives. An ``unanswered`` one is applied, but its answer
        is lost. A ``throttled`` one is refused for now.
        """
        self._spoiled.append((how, attribute))

    def writes(self, attribute: str) -> list[Write]:
        """Return the writes that set an attribute."""
        return [write for write in self.sent if attribute in write.set]

    async def write(self, write: Write) -> WriteResult:
        await self._travel()
        self.sent.append(write)
        how = self._fate(write)
        if how == "throttled":
            raise StoreThrottledError("throttled")
        if how == "lost":
            raise StoreUnavailableError("timed out")
        written = await self.table.write(write)
        if how == "unanswered":
            raise StoreUnavailableError("timed out")
        return written

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        await self._travel()
        return await self.table.get(key, consistent=consistent)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        await self._travel()
        self.queried.append(pk)
        return await self.table.query(pk, first=first, last=last, consistent=consistent)

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        await self._travel()
        return await self.table.query_not_updated_since(pk, moment)

    async def verify(self) -> str:
        await self._travel()
        return await self.table.verify()

    async def _travel(self) -> None:
        await asyncio.sleep(self.latency)
        if self.down:
            raise StoreUnavailableError("timed out")

    def _fate(self, write: Write) -> str:
        for place, (how, attribute) in enumerate(self._spoiled):
            if attribute in write.set or attribute in write.remove:
                del self._spoiled[place]
                return how
        return ""


class FaultySource(MemorySource):
    """A stream's source that fails when told to, and keeps requested iterators."""

    def __init__(self, source: MemorySource) -> None:
        super().__init__(source.kinesis, source.name)
        self.down = False
        self.errors: deque[Exception] = deque()  # the errors that the next reads raise
        self.iterators: list[tuple[str, Position | Start]] = []
        self.reads: list[float] = []
        self.limits: list[int] = []
        # A wrong result of ListShards that the test has set.
        self.listing: list[Shard] | None = None
        self.listings = 0  # the calls of ListShards
        # The number of next answers to GetRecords without an iterator and children.
        self.without_iterator: float = 0
        # The number of next reads whose iterators have expired.
        self.expired: float = 0

    async def call(self, act: Callable[[], T]) -> T:
        if self.down:
            raise SourceUnavailableError("timed out")
        return await super().call(act)

    async def list_shards(self) -> Sequence[Shard]:
        shards = await super().list_shards()
        self.listings += 1
        return shards if self.listing is None else self.listing

    def get_iterator_now(
        self, shard_id: str, after: Position | Start, *, skew: float = 0.0
    ) -> str:
        self.iterators.append((shard_id, after))
        return super().get_iterator_now(shard_id, after, skew=skew)

    async def read_page(self, iterator: str, limit: int) -> Page:
        self.reads.append(self.kinesis.clock.now())
        self.limits.append(limit)
        return await super().read_page(iterator, limit)

    def get_records_now(self, iterator: str, limit: int) -> Page:
        if self.errors:
            raise self.errors.popleft()
        if self.expired:
            self.expired -= 1
            raise ExpiredIteratorError("the iterator is too old")
        page = super().get_records_now(iterator, limit)
        if self.without_iterator:
            self.without_iterator -= 1
            page = page._replace(next_iterator=None, children=())
        return page


class DateAhead(FaultySource):
    """A stream's source behind a proxy that sets the Date by a clock that is ahead."""

    def __init__(self, source: MemorySource, ahead_seconds: float) -> None:
        super().__init__(source)
        self.ahead_seconds = ahead_seconds

    async def describe(self) -> StreamInfo:
        info = await super().describe()
        return info._replace(now=info.now + self.ahead_seconds)
