"""Looks at shards: how far a position is behind, and what arrives there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kinesumer.errors import (
    ExpiredIteratorError,
    PositionRefusedError,
    ShardMissingError,
    SourceUnavailableError,
    TrimmedPositionError,
)
from kinesumer.model import Page, Start
from kinesumer.operations.backlog import (
    Look,
    Sample,
    behind,
    estimate,
    is_at_tip,
    sample,
)

if TYPE_CHECKING:
    from kinesumer.errors import KinesumerError
    from kinesumer.model import Position, ShardKey
    from kinesumer.operations.asking import Asking, ServiceClock
    from kinesumer.ports import StreamSource
    from kinesumer.wire.rows import ShardRow

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
