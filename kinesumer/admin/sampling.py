"""Sample shards: lags, arrival rates, and the records at stored positions."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from kinesumer.admin.lag_trend import (
    ArrivalSample,
    LagSample,
    estimate_records,
    is_at_tip,
    page_millis_behind,
    sample_page,
)
from kinesumer.admin.shard_reads import PacedReader, ServiceClock, for_each_stream
from kinesumer.errors import (
    ExpiredIteratorError,
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Page, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.wire.aggregation import open_records

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from kinesumer.admin.connect import Roles
    from kinesumer.aws.kinesis import KinesisSource
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.records import Record
    from kinesumer.model.rows import ShardRow
    from kinesumer.ports import StreamSource

T = TypeVar("T")

SAMPLE_BYTES = 256 * 1024
"""The size of one sample: a small part of the 2 MB/s that a shard's readers share."""
SAMPLE_RECORDS = 1_000
DEFAULT_RECORD_BYTES = 1024
TIP_SECONDS = 10.0
"""The records of the last seconds show the current rate."""
MAX_EMPTY_PAGES = 50
"""Pages may be empty although records follow."""

SHARD_ERRORS = (
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
"""Errors that concern one shard only."""


class ShardSampler:
    """Reads of one shard."""

    def __init__(
        self,
        reader: PacedReader,
        source: StreamSource,
        key: ShardKey,
        clock: ServiceClock,
    ) -> None:
        self._reader, self._source, self._key = reader, source, key
        self.clock = clock

    async def read(self, after: Position | Start, limit: int = 1) -> Page:
        """Return the page after a position. Raises as ``PacedReader.read``."""
        return await self._reader.read(self._source, self._key, after, limit)

    async def read_first(self, after: Position | Start) -> Page:
        """Return the first page that has a record, or is at the tip."""
        return await read_first(self._reader, self._source, self._key, after)

    async def read_more(self, first: Page) -> Page:
        """Return the next page, limited by the size of the records before it."""
        assert first.next_iterator is not None
        sizes = (len(record.data) for record in first.records)
        size = max(sizes, default=DEFAULT_RECORD_BYTES)
        limit = min(max(SAMPLE_BYTES // max(size, 1), 1), SAMPLE_RECORDS)
        try:
            return await self._reader.read_on(
                self._source, self._key, first.next_iterator, limit
            )
        except ExpiredIteratorError:
            return Page([], first.next_iterator, first.millis_behind)

    async def since(self, timestamp: float) -> ArrivalSample:
        """Return a sample of the records that arrived from a time on."""
        first = await self.read(Start(type="AT_TIMESTAMP", timestamp=timestamp))
        if is_at_tip(first):
            return sample_page(first, timestamp, self.clock.now())
        more = await self.read_more(first)
        both = more._replace(records=[*first.records, *more.records])
        return sample_page(both, timestamp, self.clock.now())

    async def arrivals(self) -> ArrivalSample:
        """Return the records that arrived in the last seconds."""
        return await self.since(self.clock.now() - TIP_SECONDS)

    async def lag(self, row: ShardRow) -> LagSample:
        """Read one record after a row's position."""
        after = row.position or row.start
        try:
            page = await self.read(after)
        except SHARD_ERRORS as error:
            return LagSample(time.monotonic(), None, after, problem=str(error))
        exact = is_at_tip(page)
        records = len(page.records) if exact else None
        millis = page_millis_behind(page, self.clock.now())
        return LagSample(time.monotonic(), millis, after, records, exact)

    async def count_lag(self, row: ShardRow) -> LagSample:
        """Sample the lag, and estimate the number of unread records.

        The first record shows how large records are, which keeps the samples small.
        """
        after = row.position or row.start
        try:
            first = await self.read(after)
            at = time.monotonic()
            millis = page_millis_behind(first, self.clock.now())
            if is_at_tip(first):
                return LagSample(at, millis, after, len(first.records), True)
            more = await self.read_more(first)
            read = len(first.records) + len(more.records)
            if is_at_tip(more):
                return LagSample(at, millis, after, read, True)
            now = self.clock.now()
            samples = [
                sample_page(more, now - millis / 1000, now),
                await self.since(now - more.millis_behind / 2000),
                await self.arrivals(),
            ]
        except SHARD_ERRORS as error:
            return LagSample(time.monotonic(), None, after, problem=str(error))
        records = estimate_records(read, more.millis_behind, samples)
        return LagSample(at, millis, after, records)


class Samples(NamedTuple, Generic[T]):
    """Measurements of the shards of several streams."""

    values: dict[ShardKey, T]
    problems: dict[str, str]
    """Why a stream couldn't be read, by its ARN."""
    retention_hours: dict[str, int]
    """How long a stream keeps records, by its ARN."""


async def sample_shards(
    clients: ClientFactory,
    shards: Mapping[str, Sequence[ShardRow]],
    roles: Roles,
    measure: Callable[[ShardSampler, ShardRow], Coroutine[Any, Any, T]],
) -> Samples[T]:
    """Measure every shard that hasn't ended.

    A stream that can't be read is listed in the problems.
    """
    reader = PacedReader()
    samples = Samples[T]({}, {}, {})

    async def sample_stream(arn: str, source: KinesisSource) -> None:
        info = await source.describe()
        samples.retention_hours[arn] = info.retention_hours
        clock = ServiceClock(info.now)
        rows = [row for row in shards[arn] if not row.ended]
        values = await gather_or_cancel(
            measure(ShardSampler(reader, source, row.key, clock), row) for row in rows
        )
        samples.values.update({r.key: v for r, v in zip(rows, values, strict=True)})

    errors = await for_each_stream(clients, shards, sample_stream, roles)
    samples.problems.update({arn: str(error) for arn, error in errors.items()})
    return samples


class Presence(Enum):
    """Whether the record of a position is still in its shard."""

    THERE = "there"
    EXPIRED = "expired"
    """The record is older than the retention."""
    GONE = "gone"
    """The whole shard is older than the retention."""
    FOREIGN = "foreign"
    """Kinesis reports that the position was never in this shard."""


class Peek(NamedTuple):
    """The result of looking up one sequence number."""

    presence: Presence
    user_records: int | None = None
    """The number of records in the KPL aggregate; None if it isn't an aggregate."""
    first: str | None = None
    """The first sequence number from there on; None if no record follows."""


async def peek(
    reader: PacedReader, source: StreamSource, key: ShardKey, number: str
) -> Peek:
    """Look up the record with a sequence number. Raises KinesumerError."""
    try:
        page = await read_first(reader, source, key, Position(number, 0))
    except ShardMissingError:
        return Peek(Presence.GONE)
    except TrimmedPositionError:
        return Peek(Presence.EXPIRED)
    except InvalidPositionError:
        return Peek(Presence.FOREIGN)
    if not page.records:
        return Peek(Presence.THERE)
    first = page.records[0].sequence_number
    count = _count_user_records(page.records[0]) if first == number else None
    return Peek(Presence.THERE, count, first)


async def oldest_sequence_number(
    reader: PacedReader, source: StreamSource, key: ShardKey
) -> str | None:
    """Return the first sequence number left in a shard. Raises KinesumerError."""
    page = await read_first(reader, source, key, Start.TRIM_HORIZON)
    return page.records[0].sequence_number if page.records else None


async def read_first(
    reader: PacedReader, source: StreamSource, key: ShardKey, after: Position | Start
) -> Page:
    """Return the first page that has a record after a position, or is at the tip."""
    page = await reader.read(source, key, after, 1)
    for _ in range(MAX_EMPTY_PAGES):
        if page.records or page.next_iterator is None or is_at_tip(page):
            break
        page = await reader.read_on(source, key, page.next_iterator, 1)
    return page


def _count_user_records(record: Record) -> int | None:
    fence = Fence(ShardKey("", ""), 0)
    opened = open_records([record], Source(fence, 0, HASH_KEYS - 1)).records
    if opened and opened[0].sub_sequence_number is None:
        return None
    return len(opened)
