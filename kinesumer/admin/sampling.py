"""Looks at shards: how far a position is behind, and what arrives there."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.lag_trend import Look, Sample, behind, estimate, is_at_tip, sample
from kinesumer.errors import (
    ExpiredIteratorError,
    PositionRefusedError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Page, Source
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.wire.aggregation import open_records

if TYPE_CHECKING:
    from kinesumer.admin.shard_reads import Asking, ServiceClock
    from kinesumer.errors import KinesumerError
    from kinesumer.model.records import Record
    from kinesumer.model.rows import ShardRow
    from kinesumer.ports import StreamSource


SAMPLE_BYTES = 256 * 1024
"""Read for one sample: a small part of the 2 MB/s that a shard's readers share."""


SAMPLE_RECORDS = 1_000


USUAL_BYTES = 1024


OF_A_SHARD = (
    PositionRefusedError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
"""What is wrong with one shard only."""


TIP_SECONDS = 10.0
"""What arrived within the last seconds tells what arrives now."""


async def look(
    asking: Asking, source: StreamSource, row: ShardRow, clock: ServiceClock
) -> Look:
    """Read one record after a row's position."""
    after = row.position or row.start
    try:
        page = await asking.read(source, row.key, after, 1)
    except OF_A_SHARD as error:
        return _failed(after, error)
    exact = is_at_tip(page)
    records = len(page.records) if exact else None
    return Look(time.monotonic(), behind(page, clock.now()), after, records, exact)


def _failed(after: Position | Start, error: KinesumerError) -> Look:
    return Look(time.monotonic(), None, after, problem=str(error))


async def count(
    asking: Asking, source: StreamSource, row: ShardRow, clock: ServiceClock
) -> Look:
    """Look at a shard, and estimate how many records there are to read.

    One record tells how large records are; so the samples stay small.
    """
    after = row.position or row.start
    try:
        first = await asking.read(source, row.key, after, 1)
        at, millis = time.monotonic(), behind(first, clock.now())
        if is_at_tip(first):
            return Look(at, millis, after, len(first.records), True)
        more = await more_after(asking, source, row.key, first)
        read = len(first.records) + len(more.records)
        if is_at_tip(more):
            return Look(at, millis, after, read, True)
        now = clock.now()
        here = sample(more, now - millis / 1000, now)
        middle = now - more.millis_behind / 2000
        between = await since(asking, source, row.key, middle, clock)
        there = await arriving(asking, source, row.key, clock)
    except OF_A_SHARD as error:
        return _failed(after, error)
    records = estimate(read, more.millis_behind, [here, between, there])
    return Look(at, millis, after, records)


async def arriving(
    asking: Asking, source: StreamSource, key: ShardKey, clock: ServiceClock
) -> Sample:
    """Return what arrived in a shard in the last seconds."""
    return await since(asking, source, key, clock.now() - TIP_SECONDS, clock)


async def since(
    asking: Asking,
    source: StreamSource,
    key: ShardKey,
    moment: float,
    clock: ServiceClock,
) -> Sample:
    """Return a sample of what arrived in a shard from a moment on."""
    start = Start(type="AT_TIMESTAMP", timestamp=moment)
    first = await asking.read(source, key, start, 1)
    if is_at_tip(first):
        return sample(first, moment, clock.now())
    more = await more_after(asking, source, key, first)
    both = more._replace(records=[*first.records, *more.records])
    return sample(both, moment, clock.now())


async def more_after(
    asking: Asking, source: StreamSource, key: ShardKey, first: Page
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


class Found(Enum):
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

    found: Found
    parts: int | None = None
    """How many user records the aggregate at it holds; None: it is none."""
    first: str | None = None
    """The first sequence number that isn't before it; None: nothing follows."""


async def peek(
    asking: Asking, source: StreamSource, key: ShardKey, number: str
) -> Peek:
    """Look at the record with a sequence number. Raises KinesumerError."""
    try:
        record = await _first(asking, source, key, Position(number, 0))
    except ShardMissingError:
        return Peek(Found.GONE)
    except TrimmedPositionError:
        return Peek(Found.EXPIRED)
    except PositionRefusedError:
        return Peek(Found.FOREIGN)
    if record is None:
        return Peek(Found.THERE)
    first = record.sequence_number
    return Peek(Found.THERE, _parts(record) if first == number else None, first)


async def oldest(asking: Asking, source: StreamSource, key: ShardKey) -> str | None:
    """Return the first sequence number that a shard has left. Raises KinesumerError."""
    record = await _first(asking, source, key, Start.TRIM_HORIZON)
    return record.sequence_number if record else None


async def _first(
    asking: Asking, source: StreamSource, key: ShardKey, place: Position | Start
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
