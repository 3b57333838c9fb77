"""Create, fill and reshard streams in each backend of the contract suite."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.aws.fan_out import open_reading_source
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.errors import SourceThrottledError
from kinesumer.model.streams import Stream
from kinesumer.testing.memory import MemoryKinesis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.aws.session import ClientFactory
    from kinesumer.local import EmbeddedAws
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Shard, Start
    from kinesumer.ports import StreamSource

READ_PAUSE = 0.21  # Kinesis allows five reads a second for each shard


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def now(self) -> float:
        """Return the seconds that have passed."""
        return self.seconds

    def wall(self) -> float:
        """Return seconds since 1970."""
        return self.seconds


class MemoryStreams:
    """The streams of MemoryKinesis."""

    name = "memory"

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kinesis = MemoryKinesis(self.clock)

    async def create(self, stream: str, shards: int = 1) -> None:
        self.kinesis.create_stream(stream, shards)

    async def delete(self, stream: str) -> None:
        self.kinesis.delete_stream(stream)

    async def source(self, stream: str) -> StreamSource:
        return self.kinesis.source(stream)

    async def put(
        self, stream: str, data: bytes, key: str = "key", hash_key: int = 0
    ) -> tuple[str, str]:
        return self.kinesis.put(stream, data, key, hash_key)

    async def split(self, stream: str, shard_id: str) -> None:
        self.kinesis.split(stream, shard_id)

    async def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        self.kinesis.merge(stream, shard_id, adjacent)

    async def pause(self, seconds: float = READ_PAUSE) -> None:
        self.clock.seconds += seconds

    async def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.kinesis.apply_retention()

    def now(self) -> float:
        return self.clock.seconds


class AwsStreams:
    """The streams of a Kinesis server. Tests put records by ``client``."""

    def __init__(self, name: str, clients: ClientFactory, client: Any) -> None:
        self.name = name
        self._clients, self._client = clients, client
        self._created: list[str] = []

    async def create(self, stream: str, shards: int = 1) -> None:
        await self._client.create_stream(StreamName=stream, ShardCount=shards)
        self._created.append(stream)
        await self._active(stream)

    async def delete(self, stream: str) -> None:
        await self._client.delete_stream(
            StreamName=stream, EnforceConsumerDeletion=True
        )
        self._created.remove(stream)
        waiter = self._client.get_waiter("stream_not_exists")
        await waiter.wait(StreamName=stream, WaiterConfig={"Delay": 1})

    async def close(self) -> None:
        for stream in self._created:
            await self._client.delete_stream(
                StreamName=stream, EnforceConsumerDeletion=True
            )

    async def source(self, stream: str) -> StreamSource:
        return await open_source(self._clients, Stream(stream))

    async def consumers(self, stream: str) -> StreamConsumers:
        """Return the stream's registered consumers."""
        return StreamConsumers(await open_source(self._clients, Stream(stream)))

    async def fan_out(self, stream: str, consumer: str) -> StreamSource:
        """Return a source that reads the stream by subscriptions of a consumer."""
        return await open_reading_source(
            self._clients, Stream(stream, fan_out=consumer)
        )

    async def put(
        self, stream: str, data: bytes, key: str = "key", hash_key: int = 0
    ) -> tuple[str, str]:
        answer = await self._client.put_record(
            StreamName=stream,
            Data=data,
            PartitionKey=key,
            ExplicitHashKey=str(hash_key),
        )
        return answer["ShardId"], answer["SequenceNumber"]

    async def split(self, stream: str, shard_id: str) -> None:
        shards = {
            s.shard_id: s for s in await (await self.source(stream)).list_shards()
        }
        shard = shards[shard_id]
        await self._client.split_shard(
            StreamName=stream,
            ShardToSplit=shard_id,
            NewStartingHashKey=str((shard.first_hash + shard.last_hash + 1) // 2),
        )
        await self._active(stream)

    async def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        await self._client.merge_shards(
            StreamName=stream, ShardToMerge=shard_id, AdjacentShardToMerge=adjacent
        )
        await self._active(stream)

    async def pause(self, seconds: float = READ_PAUSE) -> None:
        await asyncio.sleep(seconds)

    async def pass_time(self, seconds: float) -> None:
        pytest.skip(f"{self.name}: its clock can't be put forward")

    def now(self) -> float:
        return time.time()

    async def _active(self, stream: str) -> None:
        source = await self.source(stream)
        while (await source.describe()).status != "ACTIVE":
            await asyncio.sleep(0.06)


class EmbeddedStreams(AwsStreams):
    """The streams of the embedded AWS. Its clock is advanced, so tests needn't wait."""

    def __init__(self, aws: EmbeddedAws, *connected: Any) -> None:
        super().__init__(*connected)
        self._aws = aws
        # Earlier tests may have used up the CreateStream calls of this second.
        aws.advance(1)

    async def pause(self, seconds: float = READ_PAUSE) -> None:
        self._aws.advance(seconds)

    async def pass_time(self, seconds: float) -> None:
        self._aws.advance(seconds)

    def now(self) -> float:
        return self._aws._state.clock.now()


Streams = MemoryStreams | AwsStreams


async def one_shard(streams: Streams, stream: str) -> tuple[StreamSource, Shard]:
    """Create a stream, and return its source and its only shard."""
    await streams.create(stream)
    source = await streams.source(stream)
    [shard] = await source.list_shards()
    return source, shard


class Room:
    """Memory for an answer of any size."""

    def __init__(self, *, asks_cbor: bool) -> None:
        self.asks_cbor = asks_cbor

    def covers(self, size: int | None) -> bool:
        """Return True."""
        return True

    def shrink(self, size: int) -> None:
        """Do nothing."""

    async def grow(self, size: int | None) -> None:
        """Do nothing."""


async def read_page(
    streams: Streams, source: StreamSource, iterator: str, *, asks_cbor: bool = False
) -> Page:
    """Read a page as soon as the shard allows it."""
    while True:
        try:
            room = Room(asks_cbor=asks_cbor)
            return await source.get_records(iterator, 10_000, room)
        except SourceThrottledError:
            await streams.pause()


async def read(
    streams: Streams,
    source: StreamSource,
    shard_id: str,
    after: Position | Start,
    pages: int = 20,
) -> list[Page]:
    """Read a shard until its end, or until no more records arrive."""
    iterator: str | None = await source.get_iterator(shard_id, after)
    found: list[Page] = []
    while iterator is not None and len(found) < pages:
        page = await read_page(streams, source, iterator)
        found.append(page)
        iterator = page.next_iterator
        if iterator is not None and not page.records and not page.millis_behind:
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
