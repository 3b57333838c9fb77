"""Create, fill, reshard and read the streams of a check."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kinesumer.aws.fan_out import open_reading_source
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.errors import (
    SourceThrottledError,
    SourceUnavailableError,
    StreamMissingError,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record
from kinesumer.model.streams import Shard, Start, Stream
from kinesumer.ports import ReservedForAny, StreamSource
from kinesumer.testing.trial.acceptance.check import (
    CheckFailedError,
    CheckSkippedError,
    expect,
    expect_equal,
)
from kinesumer.testing.trial.acceptance.resources import StreamResources

ACTIVE_SECONDS = 180.0
# Some servers send an event only once a second, and AWS needs time for all it does.
ARRIVAL_SECONDS = 60.0


class Streams:
    """The streams of AWS, or of another endpoint, and its clock.

    Tests override the methods for backends whose clock can be advanced.
    """

    def __init__(
        self,
        clients: ClientFactory,
        resources: StreamResources,
        tags: Mapping[str, str],
        *,
        tags_again: bool,
        role_arn: str | None = None,
        external_id: str | None = None,
    ) -> None:
        """``tags_again``: the endpoint may ignore the tags of CreateStream."""
        self.resources, self.role_arn = resources, role_arn
        self.created: set[str] = set()
        self._clients, self._external_id = clients, external_id
        self._tags, self._tags_again = tags, tags_again

    async def create(self, stream: str, shards: int = 1) -> None:
        """Create a stream, and wait until it is active."""
        self.created.add(stream)
        await self.resources.create(stream, shards, self._tags)
        await self._until_active(stream)
        if self._tags_again:
            await self.resources.tag(stream, self._tags)

    async def delete(self, stream: str) -> None:
        """Delete a stream, and wait until it is gone."""
        await self.begin_deleting(stream)
        source = await self.source(stream)

        async def is_gone() -> bool:
            try:
                await source.describe()
            except StreamMissingError:
                return True
            return False

        await _until(is_gone, f"stream {stream} isn't deleted")

    async def begin_deleting(self, stream: str) -> None:
        """Delete a stream, without waiting until it is gone."""
        await self.resources.delete(stream)
        self.created.discard(stream)

    def stream(self, name: str, fan_out: str | None = None) -> Stream:
        """Return a stream in the form in which a user passes it to ``consume()``."""
        role, external_id = self.role_arn, self._external_id
        return Stream(name, role_arn=role, external_id=external_id, fan_out=fan_out)

    async def source(self, stream: str) -> StreamSource:
        """Return the source of a stream."""
        return await open_source(self._clients, self.stream(stream))

    async def consumers(self, stream: str) -> StreamConsumers:
        """Return the stream's registered consumers."""
        return StreamConsumers(await open_source(self._clients, self.stream(stream)))

    async def fan_out(self, stream: str, consumer: str) -> StreamSource:
        """Return a source that reads a stream by subscriptions of a consumer."""
        return await open_reading_source(self._clients, self.stream(stream, consumer))

    async def put(
        self, stream: str, data: bytes, key: str = "key", hash_key: int = 0
    ) -> tuple[str, str]:
        """Put a record. Return its shard and its sequence number."""
        return await self.resources.put(stream, data, key, hash_key)

    async def split(self, stream: str, shard_id: str) -> None:
        """Split a shard in the middle."""
        shards = {
            s.shard_id: s for s in await (await self.source(stream)).list_shards()
        }
        shard = shards[shard_id]
        middle = (shard.first_hash + shard.last_hash + 1) // 2
        await self.resources.split(stream, shard_id, middle)
        await self._until_active(stream)

    async def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        """Merge two adjacent shards."""
        await self.resources.merge(stream, shard_id, adjacent)
        await self._until_active(stream)

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def pass_time(self, seconds: float) -> None:
        """Advance the backend's clock. A check on AWS is skipped here."""
        raise CheckSkippedError("the service's clock can't be advanced")

    def now(self) -> float:
        """Return this machine's time, in seconds since 1970."""
        return time.time()

    async def _until_active(self, stream: str) -> None:
        source = await self.source(stream)

        async def is_active() -> bool:
            return (await source.describe()).status == "ACTIVE"

        await _until(is_active, f"stream {stream} isn't active")


async def _until(holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    """Ask repeatedly. Raise SourceUnavailableError in the end."""
    deadline = time.monotonic() + ACTIVE_SECONDS
    while True:
        try:
            if await holds():
                return
        except SourceUnavailableError:
            if time.monotonic() >= deadline:
                raise
        if time.monotonic() >= deadline:
            raise SourceUnavailableError(f"{otherwise} after {ACTIVE_SECONDS:g} s")
        await asyncio.sleep(2 * CALL_SECONDS)


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
