"""Looks at shards: how far a position is behind, and what arrives there."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.lag_trend import (
    ArrivalSample,
    LagSample,
    estimate_records,
    is_at_tip,
    page_millis_behind,
    sample_page,
)
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
from kinesumer.wire.aggregation import open_records

if TYPE_CHECKING:
    from kinesumer.admin.shard_reads import PacedReader, ServiceClock
    from kinesumer.errors import KinesumerError
    from kinesumer.model.records import Record
    from kinesumer.model.rows import ShardRow
    from kinesumer.ports import StreamSource


SAMPLE_BYTES = 256 * 1024
"""Read for one sample: a small part of the 2 MB/s that a shard's readers share."""


SAMPLE_RECORDS = 1_000


USUAL_BYTES = 1024


SHARD_ERRORS = (
    InvalidPositionError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
"""What is wrong with one shard only."""


TIP_SECONDS = 10.0
"""What arrived within the last seconds tells what arrives now."""


async def sample_lag(
    asking: PacedReader, source: StreamSource, row: ShardRow, clock: ServiceClock
) -> LagSample:
    """Read one record after a row's position."""
    after = row.position or row.start
    try:
        page = await asking.read(source, row.key, after, 1)
    except SHARD_ERRORS as error:
        return _failed(after, error)
    exact = is_at_tip(page)
    records = len(page.records) if exact else None
    return LagSample(
        time.monotonic(), page_millis_behind(page, clock.now()), after, records, exact
    )


def _failed(after: Position | Start, error: KinesumerError) -> LagSample:
    return LagSample(time.monotonic(), None, after, problem=str(error))


async def count_lag(
    asking: PacedReader, source: StreamSource, row: ShardRow, clock: ServiceClock
) -> LagSample:
    """Look at a shard, and estimate how many records there are to read.

    One record tells how large records are; so the samples stay small.
    """
    after = row.position or row.start
    try:
        first = await asking.read(source, row.key, after, 1)
        at, millis = time.monotonic(), page_millis_behind(first, clock.now())
        if is_at_tip(first):
            return LagSample(at, millis, after, len(first.records), True)
        more = await read_more(asking, source, row.key, first)
        read = len(first.records) + len(more.records)
        if is_at_tip(more):
            return LagSample(at, millis, after, read, True)
        now = clock.now()
        here = sample_page(more, now - millis / 1000, now)
        middle = now - more.millis_behind / 2000
        between = await sample_since(asking, source, row.key, middle, clock)
        there = await sample_arrivals(asking, source, row.key, clock)
    except SHARD_ERRORS as error:
        return _failed(after, error)
    records = estimate_records(read, more.millis_behind, [here, between, there])
    return LagSample(at, millis, after, records)


async def sample_arrivals(
    asking: PacedReader, source: StreamSource, key: ShardKey, clock: ServiceClock
) -> ArrivalSample:
    """Return what arrived in a shard in the last seconds."""
    return await sample_since(asking, source, key, clock.now() - TIP_SECONDS, clock)


async def sample_since(
    asking: PacedReader,
    source: StreamSource,
    key: ShardKey,
    moment: float,
    clock: ServiceClock,
) -> ArrivalSample:
    """Return a sample of what arrived in a shard from a moment on."""
    start = Start(type="AT_TIMESTAMP", timestamp=moment)
    first = await asking.read(source, key, start, 1)
    if is_at_tip(first):
        return sample_page(first, moment, clock.now())
    more = await read_more(asking, source, key, first)
    both = more._replace(records=[*first.records, *more.records])
    return sample_page(both, moment, clock.now())


async def read_more(
    asking: PacedReader, source: StreamSource, key: ShardKey, first: Page
) -> Page:
    """Return the next page, of a size that fits what was seen."""
    assert first.next_iterator is not None
    size = max((len(record.data) for record in first.records), default=USUAL_BYTES)
    most = min(max(SAMPLE_BYTES // max(size, 1), 1), SAMPLE_RECORDS)
    try:
        return await asking.read_on(source, key, first.next_iterator, most)
    except ExpiredIteratorError:
        return Page([], first.next_iterator, first.millis_behind)


MOST_PAGES = 50
"""Pages may be empty where there are records further on."""


class Presence(Enum):
    """What became of a position."""

    THERE = "there"
    EXPIRED = "expired"
    """Retention has passed it."""
    GONE = "gone"
    """Retention has passed the whole shard."""
    FOREIGN = "foreign"
    """Kinesis says that it was never in this shard."""


class Peek(NamedTuple):
    """An answer about one sequence number."""

    found: Presence
    parts: int | None = None
    """How many user records the aggregate at it holds; None: it is none."""
    first: str | None = None
    """The first sequence number that isn't before it; None: nothing follows."""


async def peek(
    asking: PacedReader, source: StreamSource, key: ShardKey, number: str
) -> Peek:
    """Look at the record with a sequence number. Raises KinesumerError."""
    try:
        record = await _first(asking, source, key, Position(number, 0))
    except ShardMissingError:
        return Peek(Presence.GONE)
    except TrimmedPositionError:
        return Peek(Presence.EXPIRED)
    except InvalidPositionError:
        return Peek(Presence.FOREIGN)
    if record is None:
        return Peek(Presence.THERE)
    first = record.sequence_number
    return Peek(Presence.THERE, _parts(record) if first == number else None, first)


async def oldest_sequence_number(
    asking: PacedReader, source: StreamSource, key: ShardKey
) -> str | None:
    """Return the first sequence number that a shard has left. Raises KinesumerError."""
    record = await _first(asking, source, key, Start.TRIM_HORIZON)
    return record.sequence_number if record else None


async def _first(
    asking: PacedReader, source: StreamSource, key: ShardKey, place: Position | Start
) -> Record | None:
    page = await asking.read(source, key, place, 1)
    for _ in range(MOST_PAGES):
        if page.records:
            return page.records[0]
        if page.next_iterator is None or not page.millis_behind:
            return None
        page = await asking.read_on(source, key, page.next_iterator, 1)
    return None


def _parts(record: Record) -> int | None:
    fence = Fence(ShardKey("", ""), 0)
    opened = open_records([record], Source(fence, 0, HASH_KEYS - 1)).records
    if opened and opened[0].sub_sequence_number is None:
        return None
    return len(opened)
