"""Simulate the streams of tables: their source, over a link.

The shards and records are those of the model of Kinesis. What differs is what a client
sees: places instead of hash keys, pages of shards, a filter of children, pages of
records that name neither children nor how far they are behind, and empty ones.
"""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kinesumer.aws.table_polling import (
    EMPTY_PAGES_AT_TIP,
    Described,
    TablePollingSource,
)
from kinesumer.errors import (
    ExpiredIteratorError,
    SourceThrottledError,
    SourceUnavailableError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Reservation
from kinesumer.testing.simulation.machine import SharedLink
from kinesumer.testing.simulation.memory_kinesis import (
    MemoryKinesis,
    MemorySource,
    fit,
)
from kinesumer.testing.simulation.network import Link
from kinesumer.wire.table_streams import StreamPage, millis_behind, shard_place

# Fewer than those of AWS, so that small groups have several pages, too.
PAGE_SHARDS = 5
# How long a new shard may be missing in a listing, if listings are late.
LATE_SECONDS = 10.0


@dataclass(eq=False)
class LinkedTableSource(Link, TablePollingSource):
    """The ports.StreamSource that one machine uses for a table over its link."""

    throttled = SourceThrottledError
    unavailable = SourceUnavailableError
    answer_seconds = math.inf  # as of ``network.LinkedSource``

    kinesis: MemoryKinesis
    name: str
    line: SharedLink | None = None
    # By shard: how many pages in a row were empty by chance.
    _empty: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without a listing."""
        TablePollingSource.__init__(self)
        self._model = MemorySource(self.kinesis, self.name)

    @property
    def label(self) -> str:
        """The stream's name, for messages."""
        return f"stream {self.name}"

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once, since the number of connections is unlimited."""
        return nullcontext()

    async def _describe(self, **arguments: Any) -> Described:
        described = await self.call(partial(self._describe_now, arguments))
        return described._replace(now=described.now + self.skew())

    async def _place(self, shard_id: str, after: Position | Start) -> str:
        if isinstance(after, Start) and after.timestamp is not None:
            if self._has(self.network.coarse):
                after = Start(type=after.type, timestamp=after.timestamp // 1)
        get = partial(self._model.get_iterator_now, shard_id, after, skew=self.skew())
        return f"{shard_id}/{await self.call(get)}"

    async def _read(
        self, iterator: str, limit: int, reservation: Reservation | None
    ) -> Page:
        if self._has(self.network.expired):
            raise ExpiredIteratorError("the iterator has expired")
        shard_id, _, place = iterator.partition("/")
        if self._has(self.network.short):
            limit = min(limit, self.random.randrange(1, 4))
            empty = self._empty.get(shard_id, 0) + 1
            if empty < EMPTY_PAGES_AT_TIP and self.random.random() < 0.5:
                self._empty[shard_id] = empty
                return Page([], iterator, 0)
        self._empty.pop(shard_id, None)
        page = await self.call(partial(self._model.get_records_now, place, limit))
        if reservation is not None:
            await fit(reservation, page.wire_bytes)
        if self.line is not None and self.line.bytes_per_second:
            await self.line.arrival(page.wire_bytes)
        following = page.next_iterator and f"{shard_id}/{page.next_iterator}"
        if self._has(self.network.no_iterator):
            following = None
        records = list(page.records)
        now = self.kinesis.clock.wall() + self.skew()
        behind = millis_behind(records, now, is_full=False)
        return Page(records, following, behind, wire_bytes=page.wire_bytes)

    async def _latest_arn(self) -> str | None:
        return None

    def skew(self) -> float:
        """Draw the error of the clock of the server that answers next."""
        most = self.network.skew
        return most * (2 * self.random.random() - 1) if most else 0.0

    def _describe_now(self, arguments: dict[str, Any]) -> Described:
        info, shards = self._model.describe_now(), self._shards_now()
        after = str(arguments.get("ExclusiveStartShardId", ""))
        rest = [shard for shard in shards if shard.shard_id > after]
        if wanted := arguments.get("ShardFilter"):
            rest = [shard for shard in rest if wanted["ShardId"] in shard.parents]
        found = rest[: arguments.get("Limit", PAGE_SHARDS)]
        last = found[-1].shard_id if len(found) < len(rest) else None
        page = StreamPage(
            info.arn, self.name, "ENABLED", info.created_at, "", found, last
        )
        return Described(page, info.now)

    def _shards_now(self) -> list[Shard]:
        shards = self._model.list_shards_now()
        if self._has(self.network.cut_off):
            opened = self.kinesis.stream(self.name).shards
            since = self.kinesis.clock.wall() - LATE_SECONDS
            shards = [
                shard
                for shard in shards
                if opened[shard.shard_id].created_at < since or not shard.parents
            ]
        return [place_shard(shard) for shard in shards]


def place_shard(shard: Shard) -> Shard:
    """Return a shard as the stream of a table has it: with a place, not hash keys."""
    place = shard_place(shard.shard_id)
    return shard._replace(first_hash=place, last_hash=place)
