"""Find some records of one shard, with few and small reads."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kinesumer.core.pacing import SHARED_PAGE_BYTES
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, ShardKey, Start, StreamInfo
from kinesumer.ops.group.sampling import (
    ShardSampler,
    page_end,
    sample_limit,
)
from kinesumer.ops.group.shard_reads import MAX_READS, PacedReader
from kinesumer.ports import StreamSource

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
    """Return the records of a shard that match a query.

    ``reader`` limits the rate. ``info`` must have been described just now.

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
            for record in _after(start, records):
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
    """Search times before now, each ten times as long as the one before.

    Return what the longest complete one has.
    """
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


def _after(start: Position | Start, records: list[Record]) -> list[Record]:
    """Return records without parts of an aggregate that precede the start."""
    if isinstance(start, Start):
        return records
    return [record for record in records if record.position > start]


def _at(seconds: float) -> Start:
    return Start(type="AT_TIMESTAMP", timestamp=max(seconds, 0.0))
