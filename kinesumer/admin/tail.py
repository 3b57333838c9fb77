"""Which shards may be read by now: a child after all its parents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.core.lineage import as_shard
from kinesumer.core.pacing import Pacing
from kinesumer.errors import (
    ExpiredIteratorError,
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Page, Source
from kinesumer.model.streams import ShardKey, Start
from kinesumer.wire.aggregation import open_records
from kinesumer.wire.records import payload_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.streams import Shard


class ParentFirstOrder:
    """The shards of one stream, those that were begun, and those that have ended.

    From the latest record on, only shards that are open at the start and their
    descendants count. What is born later is read from its beginning.
    """

    def __init__(self, listing: Iterable[Shard], start: Start) -> None:
        self._starts = {
            shard: start
            for shard in listing
            if not (shard.closed and start == Start.LATEST)
        }
        self._begun: set[str] = set()
        self._ended: set[str] = set()

    def ready(self) -> list[tuple[Shard, Start]]:
        """Return the shards that may be begun now, each once, and where to begin."""
        known = {shard.shard_id for shard in self._starts}
        found = [
            (shard, start)
            for shard, start in self._starts.items()
            if shard.shard_id not in self._begun
            and self._ended.issuperset(known.intersection(shard.parents))
        ]
        self._begun.update(shard.shard_id for shard, _ in found)
        return found

    def end(self, shard_id: str, children: Iterable[Shard]) -> None:
        """Note that a shard was read to its end, and which children it has."""
        self._ended.add(shard_id)
        known = {shard.shard_id for shard in self._starts}
        for child in children:
            if child.shard_id not in known:
                self._starts[child] = Start.TRIM_HORIZON


if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from kinesumer.model.records import Record
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import Clock, StreamSource

    Take = Callable[[Sequence[Record]], Awaitable[None]]


PAGE_RECORDS = 10_000


PAGES_AT_ONCE = 16
"""A page holds up to 10 MB: memory is bounded by how many are held."""


class Tail:
    """Hands a stream's records on as they arrive, in order for each shard.

    ``take`` gets a page's records and may take its time; ``say`` gets what a person
    should know.
    """

    def __init__(
        self,
        source: StreamSource,
        info: StreamInfo,
        take: Take,
        *,
        say: Callable[[str], None],
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._source, self._info, self._take = source, info, take
        self._say, self._clock, self._chance = say, clock, chance
        self._room = asyncio.Semaphore(PAGES_AT_ONCE)

    async def run(self, start: Start) -> None:
        """Read until every shard has ended. Raises what ``take`` raises."""
        descent = ParentFirstOrder(await self._source.list_shards(), start)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._begin(descent, tasks)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def _begin(self, descent: ParentFirstOrder, tasks: asyncio.TaskGroup) -> None:
        for shard, start in descent.ready():
            tasks.create_task(self._follow(shard, start, descent, tasks))

    async def _follow(
        self,
        shard: Shard,
        start: Start,
        descent: ParentFirstOrder,
        tasks: asyncio.TaskGroup,
    ) -> None:
        children = await self._read(shard, start)
        descent.end(shard.shard_id, children or await self._children(shard))
        self._begin(descent, tasks)

    async def _children(self, shard: Shard) -> list[Shard]:
        """Look children up that the last page didn't name."""
        while True:
            try:
                listing = await self._source.list_shards()
            except SourceUnavailableError as error:
                await self._complain(error)
            else:
                return [s for s in listing if shard.shard_id in s.parents]

    async def _complain(self, error: SourceUnavailableError) -> None:
        self._say(f"{error}; trying again")
        await asyncio.sleep(1.0)

    async def _read(self, shard: Shard, start: Start) -> list[Shard]:
        """Read a shard to its end; return the children that its last page names."""
        reader = TailReader(self._source, shard, start, self._info)
        pacing = Pacing(self._clock.now())
        failing = False
        while True:
            began = self._clock.now()
            try:
                async with self._room:
                    page = await reader.next(pacing.page_records(PAGE_RECORDS))
                    if page.records:
                        await self._take(page.records)
            except ShardMissingError as error:
                self._say(str(error))
                return []
            except TrimmedPositionError as error:
                self._say(f"records were lost to retention: {error}")
                reader.restart()
                continue
            except ShardThrottledError:
                jitter = self._chance.random()
                now, wall = self._clock.now(), self._clock.wall()
                following = pacing.after_throttle(now, wall, jitter)
            except SourceUnavailableError as error:
                if not failing and not isinstance(error, SourceThrottledError):
                    self._say(f"{error}; trying again")
                    failing = True
                jitter = self._chance.random()
                following = pacing.after_failure(self._clock.now(), jitter)
            else:
                failing = False
                if page.next_iterator is None:
                    return [as_shard(child) for child in page.children]
                following = pacing.after_page(
                    began,
                    records=len(page.records),
                    payload_bytes=payload_bytes(page),
                    millis_behind=page.millis_behind,
                )
            await asyncio.sleep(max(0.0, following - self._clock.now()))


class TailReader:
    """A place in one shard, and the iterator there."""

    def __init__(
        self, source: StreamSource, shard: Shard, start: Start, info: StreamInfo
    ) -> None:
        self._source, self._shard_id = source, shard.shard_id
        fence = Fence(ShardKey(info.arn, shard.shard_id), 0)
        self._of = Source(fence, shard.first_hash, shard.last_hash)
        self._place: Position | Start = start
        self._began = info.now
        self._iterator: str | None = None

    async def next(self, limit: int) -> Page:
        """Return the next page, its aggregates opened. Raises what the source does."""
        if self._iterator is None:
            self._iterator = await self._source.get_iterator(
                self._shard_id, self._place
            )
            if self._place == Start.LATEST:
                # Whoever asks again for the latest would leave out what came since.
                self._place = Start(type="AT_TIMESTAMP", timestamp=self._began)
        try:
            page = await self._source.get_records(self._iterator, limit)
        except ExpiredIteratorError:
            self._iterator = None
            return Page([], "", 1)
        self._iterator = page.next_iterator
        opened = open_records(page.records, self._of)
        if opened.last is not None:
            self._place = Position(opened.last)
        return page._replace(records=opened.records)

    def restart(self) -> None:
        """Go on with the oldest record that is left."""
        self._place, self._iterator = Start.TRIM_HORIZON, None
