"""Read a stream's records as they arrive, children after their parents."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.core.pacing import Pacing
from kinesumer.core.shard_end import records_before
from kinesumer.errors import (
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.records import Record
from kinesumer.model.streams import Shard, ShardKey, Start, StreamInfo
from kinesumer.model.times import Until
from kinesumer.ops.group.shard_reads import PARALLEL_READS
from kinesumer.ports import Clock, StreamSource
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.wire.records import payload_bytes

HandleRecords = Callable[[Sequence[Record]], Awaitable[None]]


class ParentFirstOrder:
    """Determines the order of reading shards: each child after all its parents.

    With ``Start.LATEST``, only the shards open at the start and their descendants are
    read. Shards that are created later are read from their beginning.
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
        """Return the shards that have become readable, with their starts."""
        # A parent that Kinesis no longer lists has expired, so no child waits for it.
        known = {shard.shard_id for shard in self._starts}
        ready = [
            (shard, start)
            for shard, start in self._starts.items()
            if shard.shard_id not in self._begun
            and self._ended.issuperset(known.intersection(shard.parents))
        ]
        self._begun.update(shard.shard_id for shard, _ in ready)
        return ready

    def end(self, shard_id: str, children: Iterable[Shard]) -> None:
        """Record that a shard was read to its end. Add its children."""
        self._ended.add(shard_id)
        known = {shard.shard_id for shard in self._starts}
        for child in children:
            if child.shard_id not in known:
                self._starts[child] = Start.TRIM_HORIZON


class Tail:
    """Passes a stream's records to ``handle`` as they arrive, in order for each shard.

    Reading waits while ``handle`` runs. ``report`` receives messages for the user.
    """

    def __init__(
        self,
        source: StreamSource,
        info: StreamInfo,
        handle: HandleRecords,
        *,
        report: Callable[[str], None],
        clock: Clock,
        chance: random.Random,
        until: Until | None = None,
    ) -> None:
        self._source, self._info, self._handle = source, info, handle
        self._report, self._clock, self._chance = report, clock, chance
        # Kinesis gives its time in whole seconds, so it may be a second later.
        self._until = info.now + 1 if until == "now" else until or math.inf
        self._created_at = clock.now()
        # A page holds up to 10 MB, so the number of held pages bounds the memory.
        self._held_pages = asyncio.Semaphore(PARALLEL_READS)

    async def run(self, start: Start) -> None:
        """Read until every shard has ended, or until the time of ``until``.

        Errors of ``handle`` are raised.
        """
        order = ParentFirstOrder(await self._source.list_shards(), start)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._start_ready(order, tasks)
        except BaseExceptionGroup as group:
            # The first error has cancelled the other tasks.
            raise group.exceptions[0] from None

    def _start_ready(self, order: ParentFirstOrder, tasks: asyncio.TaskGroup) -> None:
        for shard, start in order.ready():
            tasks.create_task(self._follow(shard, start, order, tasks))

    async def _follow(
        self,
        shard: Shard,
        start: Start,
        order: ParentFirstOrder,
        tasks: asyncio.TaskGroup,
    ) -> None:
        children = await self._read(shard, start)
        if children is None:
            return  # its children have only records that arrived later
        order.end(shard.shard_id, children or await self._children(shard))
        self._start_ready(order, tasks)

    async def _children(self, shard: Shard) -> list[Shard]:
        """List the children of a shard whose last page didn't name them."""
        while True:
            try:
                listing = await self._source.list_shards()
            except SourceUnavailableError as error:
                self._report(f"{error}; trying again")
                await asyncio.sleep(1.0)
            else:
                return [s for s in listing if shard.shard_id in s.parents]

    async def _read(self, shard: Shard, start: Start) -> list[Shard] | None:
        """Read a shard to its end; return the children that its last page names.

        Return None if the time of ``until`` was reached before its end.
        """
        reader = ShardPages(
            self._source,
            ShardKey(self._info.arn, shard.shard_id),
            start,
            self._info.now,
            hash_keys=(shard.first_hash, shard.last_hash),
        )
        pacing = Pacing(self._clock.now())
        failing = False
        while True:
            began = self._clock.now()
            try:
                async with self._held_pages:
                    page = await reader.next(pacing.page_records(PAGE_RECORDS))
                    count = records_before(page, self._until)
                    is_late = count < len(page.records)
                    async for records in reader.opened(page.records[:count]):
                        await self._handle(records)
            except ShardMissingError as error:
                self._report(str(error))
                return []
            except TrimmedPositionError as error:
                self._report(f"records older than the retention were lost: {error}")
                reader.restart()
                continue
            except ShardThrottledError:
                jitter = self._chance.random()
                now = self._clock.now()
                following = pacing.after_throttle(now, jitter)
            except SourceUnavailableError as error:
                if not failing and not isinstance(error, SourceThrottledError):
                    self._report(f"{error}; trying again")
                    failing = True
                jitter = self._chance.random()
                following = pacing.after_failure(self._clock.now(), jitter)
            else:
                failing = False
                if is_late:
                    return None
                if page.next_iterator is None:
                    return list(page.children)
                if not page.millis_behind and self._has_reached(began):
                    return None
                following = pacing.after_page(
                    began,
                    records=len(page.records),
                    payload_bytes=payload_bytes(page),
                    millis_behind=page.millis_behind,
                )
            await asyncio.sleep(max(0.0, following - self._clock.now()))

    def _has_reached(self, now: float) -> bool:
        """Return whether Kinesis's clock had reached the time of ``until``."""
        return self._info.now + now - self._created_at >= self._until
