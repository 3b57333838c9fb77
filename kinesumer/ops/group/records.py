"""Read records for people: some of one shard, or a stream's as they arrive."""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from kinesumer.consuming.prefetch import PAGE_RECORDS
from kinesumer.core.lineage import records_before
from kinesumer.core.pacing import SHARED_PAGE_BYTES, Pacing
from kinesumer.errors import (
    ShardMissingError,
    ShardThrottledError,
    SourceThrottledError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, ShardKey, Start, StreamInfo
from kinesumer.model.times import Until
from kinesumer.ops.group.shard_reads import (
    MAX_READS,
    PARALLEL_READS,
    PacedReader,
    ShardSampler,
    page_end,
    sample_limit,
)
from kinesumer.ports import Clock, StreamSource
from kinesumer.runtime.shard_pages import ShardPages
from kinesumer.runtime.tasks import Retries, first_error
from kinesumer.wire.records import payload_bytes

HandleRecords = Callable[[Sequence[Record]], Awaitable[None]]

# Limits of one query, beside MAX_READS. The last page may exceed the limit of bytes.
MAX_BYTES = MAX_READS * SHARED_PAGE_BYTES
MAX_RECORDS = 200
# Kinesis reports its time in whole seconds, so no shorter time is searched.
CLOCK_SECONDS = 1.0


class RecordQuery(NamedTuple):
    """The records to find in one shard."""

    start: Position | Start | None  # where to begin; None for the shard's last records
    limit: int  # the maximum number of records
    contains: bytes = b""  # what the data must contain
    partition_key: str = ""  # the exact partition key; empty for all keys

    def matches(self, record: Record) -> bool:
        """Return whether a record has the key and contains the text."""
        if self.partition_key and record.partition_key != self.partition_key:
            return False
        return self.contains in record.data


class FoundRecords(NamedTuple):
    """The result of a query."""

    records: list[Record]  # in order, with opened aggregates
    scanned: int  # the number of records that were compared with the query
    reads: int
    next: Position | Start  # where another query continues
    # Why the query ended: "limit" (enough records), "tip" (no later record at present),
    # "end" (the shard was read to its end), or "budget" (a limit of MAX_*).
    ended_by: str
    # The scanned records arrived at this time (seconds since 1970) or later. None if
    # they begin with the oldest record, or at the query's start.
    since: float | None = None


async def find_records(
    reader: PacedReader,
    source: StreamSource,
    info: StreamInfo,
    shard: Shard,
    query: RecordQuery,
) -> FoundRecords:
    """Return the records of a shard that match a query; ``info`` must be recent.

    Raises ShardMissingError, TrimmedPositionError, InvalidPositionError,
    StartInFutureError, SourceUnavailableError.
    """
    key = ShardKey(info.arn, shard.shard_id)
    scan = _Scan(ShardSampler(reader, source, key, info.now), shard)
    if query.start is None:
        return await _find_last(scan, query, info.retention_hours * 3600)
    start = query.start
    if start == Start.LATEST:
        # Another query at LATEST would skip the records that arrive between the two.
        start = _at(info.now)
    return await _search(scan, query, start)


async def _search(
    scan: _Scan,
    query: RecordQuery,
    start: Position | Start,
    *,
    until: float | None = None,
) -> FoundRecords:
    """Return the first matching records after a start, or the last up to ``until``."""
    scan.begin(start)
    found: deque[Record] = deque(maxlen=query.limit)
    scanned, position, ended_by = 0, start, "budget"
    while ended_by == "budget" and not scan.is_spent:
        page = await scan.next_page()
        async for records in scan.pages.opened(page.records):
            for record in records:
                if isinstance(start, Position) and record.position <= start:
                    continue  # a part of an aggregate before the start
                scanned, position = scanned + 1, record.position
                if query.matches(record):
                    found.append(record)
                if until is None and len(found) == query.limit:
                    first = list(found)
                    return FoundRecords(first, scanned, scan.reads, position, "limit")
        end = page_end(page, scan.now())
        # The tip of a busy shard moves on while the shard is read.
        if page.is_at_tip or (until is not None and end >= until):
            ended_by = "tip" if page.next_iterator else "end"
        if not scanned and (until is not None or ended_by == "budget"):
            # Without a record to continue after, use the time, which may be late.
            position = _at(min(end, until or end) - CLOCK_SECONDS)
    return FoundRecords(list(found), scanned, scan.reads, position, ended_by)


async def _find_last(
    scan: _Scan, query: RecordQuery, retention_seconds: float
) -> FoundRecords:
    """Search times before now, each ten times longer; return the last complete one."""
    began, seconds = scan.now(), CLOCK_SECONDS
    best = FoundRecords([], 0, 0, _at(began), "budget", began)
    while not scan.is_spent:
        is_all = seconds >= retention_seconds
        since = None if is_all else began - seconds
        start = Start.TRIM_HORIZON if since is None else _at(since)
        found = await _search(scan, query, start, until=began)
        if found.ended_by == "budget":
            break
        best = found._replace(since=since)
        if is_all or len(best.records) == query.limit:
            return best
        seconds *= 10
    return best._replace(reads=scan.reads, ended_by="budget")


class _Scan:
    """Reads pages of one shard, within the limits of one query."""

    def __init__(self, sampler: ShardSampler, shard: Shard) -> None:
        self.now = sampler.now
        self._sampler, self._shard = sampler, shard
        self._page_records = sample_limit(None)
        self._bytes = self.reads = 0

    @property
    def is_spent(self) -> bool:
        """True if the query must not read any further."""
        return self.reads >= MAX_READS or self._bytes >= MAX_BYTES

    def begin(self, start: Position | Start) -> None:
        """Continue at another place of the shard."""
        hash_keys = self._shard.first_hash, self._shard.last_hash
        self.pages = self._sampler.pages(start, hash_keys=hash_keys)

    async def next_page(self) -> Page:
        """Return the next page. Raises the source's errors."""
        page = await self.pages.next(self._page_records)
        self.reads += 1
        self._bytes += page.wire_bytes
        if page.records:
            record_bytes = page.wire_bytes / len(page.records)
            self._page_records = sample_limit(record_bytes, SHARED_PAGE_BYTES)
        return page


def _at(seconds: float) -> Start:
    return Start(type="AT_TIMESTAMP", timestamp=max(seconds, 0.0))


# --- the tail of a stream -------------------------------------------------------------


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
            raise first_error(group) from None

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
        if children is not None:  # else its children have only later records
            order.end(shard.shard_id, children or await self._children(shard))
            self._start_ready(order, tasks)

    async def _children(self, shard: Shard) -> list[Shard]:
        """List the children of a shard whose last page didn't name them."""
        listing = await Retries().call(
            self._source.list_shards,
            on_failure=lambda error: self._report(f"{error}; trying again"),
        )
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
                now, jitter = self._clock.now(), self._chance.random()
                following = pacing.after_throttle(now, jitter)
            except SourceUnavailableError as error:
                if not failing and not isinstance(error, SourceThrottledError):
                    self._report(f"{error}; trying again")
                    failing = True
                now, jitter = self._clock.now(), self._chance.random()
                following = pacing.after_failure(now, jitter)
            else:
                failing = False
                if is_late:
                    return None
                if page.next_iterator is None:
                    return list(page.children)
                now = self._info.now + began - self._created_at  # at Kinesis
                if not page.millis_behind and now >= self._until:
                    return None
                following = pacing.after_page(
                    began,
                    records=len(page.records),
                    payload_bytes=payload_bytes(page),
                    millis_behind=page.millis_behind,
                )
            await asyncio.sleep(max(0.0, following - self._clock.now()))
