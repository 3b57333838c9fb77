"""Create and read the stream of a check."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kinesumer.errors import SourceThrottledError
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import ReservedForAny, StreamSource
from kinesumer.testing.trial.acceptance.check import (
    CheckFailedError,
    expect,
    expect_equal,
)
from kinesumer.testing.trial.acceptance.resources import Streams

# Some servers send an event only once a second, and AWS needs time for all it does.
ARRIVAL_SECONDS = 60.0


async def one_shard(streams: Streams, stream: str) -> tuple[StreamSource, Shard]:
    """Create a stream, and return its source and its only shard."""
    await streams.create(stream)
    source = await streams.source(stream)
    shards = await source.list_shards()
    expect_equal(len(shards), 1, "shards of a new stream")
    return source, shards[0]


async def read_page(
    streams: Streams,
    source: StreamSource,
    iterator: str,
    room: ReservedForAny | None = None,
) -> Page:
    """Read a page as soon as the shard allows it: in JSON, unless there is a room."""
    while True:
        try:
            return await source.get_records(iterator, 10_000, room)
        except SourceThrottledError:
            await streams.pause()


async def read(
    streams: Streams,
    source: StreamSource,
    shard_id: str,
    after: Position | Start,
    at_least: int = 0,
) -> list[Page]:
    """Read a shard until its end, or until no more records arrive.

    Kinesis may show a record some time after it was put: the first ``at_least`` records
    are waited for.
    """
    iterator: str | None = await source.get_iterator(shard_id, after)
    found: list[Page] = []
    deadline = time.monotonic() + ARRIVAL_SECONDS
    while iterator is not None:
        page = await read_page(streams, source, iterator)
        found.append(page)
        iterator = page.next_iterator
        is_at_tip = not page.records and not page.millis_behind
        if is_at_tip and (
            len(data_of(found)) >= at_least or time.monotonic() > deadline
        ):
            break
    return found


def data_of(pages: list[Page]) -> list[bytes]:
    """Return the data of all records, in order."""
    return [record.data for page in pages for record in page.records]


def tiles(shards: Sequence[Shard], first: int, last: int) -> bool:
    """Return whether shards cover the hash keys from first to last exactly once."""
    for shard in sorted(shards, key=lambda shard: shard.first_hash):
        if shard.first_hash != first:
            return False
        first = shard.last_hash + 1
    return first == last + 1


def records_of(pages: list[Page]) -> list[Record]:
    """Return all records, in order."""
    return [record for page in pages for record in page.records]


def arrival(record: Record) -> float:
    """Return a record's arrival time. Raise CheckFailedError if it has none."""
    if record.approximate_arrival_timestamp is None:
        raise CheckFailedError(f"record {record.sequence_number} has no arrival time")
    return record.approximate_arrival_timestamp


async def page_of_all(
    streams: Streams,
    source: StreamSource,
    iterator: str,
    room: ReservedForAny | None = None,
) -> Page:
    """Return the first page with records."""
    deadline = time.monotonic() + ARRIVAL_SECONDS
    following: str | None = iterator
    while following is not None and time.monotonic() < deadline:
        page = await read_page(streams, source, following, room)
        if page.records:
            return page
        following = page.next_iterator
    raise CheckFailedError(f"no record was read in {ARRIVAL_SECONDS:g} s")


def expect_ended(pages: list[Page], data: list[bytes]) -> None:
    """Raise CheckFailedError unless a shard had these records and has ended."""
    expect_equal(data_of(pages), data)
    expect(pages[-1].next_iterator is None, "the closed shard doesn't end")
