"""Retains sources, iterators and read rates in a process between batches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from pyspark import TaskContext

from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.roles import environment_keys
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.sources import open_polled_source, open_reading_source
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.core.pacing import Pacing
from kinesumer.model.positions import Position
from kinesumer.model.streams import CONSUMER_ARN, ShardKey, Stream, StreamInfo
from kinesumer.ports import Clock, StreamSource
from kinesumer.spark.options.parser import Connection

Paces = Callable[[ShardKey, float, float], Pacing]

# Iterators are used for this time. In Kinesis, they expire after five minutes.
ITERATOR_SECONDS = 270.0


class Sources:
    """The sources of one event loop. Sources of a region and role share a client."""

    def __init__(self, connection: Connection) -> None:
        self.clients: ClientFactory = ClientFactory(
            region=connection.region,
            endpoints={
                "kinesis": connection.kinesis_endpoint,
                "dynamodb": connection.dynamodb_endpoint,
                "dynamodbstreams": connection.dynamodb_endpoint,
                "sts": connection.sts_endpoint,
            },
            # The driver has read the stream before it runs tasks.
            trusted=TaskContext.get() is not None,
            keys=environment_keys(),
        )
        # By stream: when it was last described, and its description.
        self.infos: dict[Stream, tuple[float, StreamInfo]] = {}
        self._sources: dict[Stream, StreamSource] = {}
        self._kinesis: dict[Stream, KinesisSource] = {}
        self._fan_out: dict[Stream, StreamSource] = {}
        self._lock = asyncio.Lock()

    async def open(self, stream: Stream) -> StreamSource:
        """Return the source for a stream, which uses the stream's role and region."""
        # All shards of a task call this at the same time. Open only one source.
        async with self._lock:
            if stream not in self._sources:
                self._sources[stream] = await open_polled_source(self.clients, stream)
            return self._sources[stream]

    async def open_kinesis(self, stream: Stream) -> KinesisSource:
        """Return the source for a Kinesis stream, to put records or find consumers.

        Raise ConfigurationError for the stream of a table.
        """
        async with self._lock:
            if stream not in self._kinesis:
                self._kinesis[stream] = await open_source(self.clients, stream)
            return self._kinesis[stream]

    async def open_fan_out(self, stream: Stream) -> StreamSource:
        """Return a source that subscribes with the consumer ``stream.fan_out``, an ARN.

        The source does not wait if a shard's last subscription is too young.
        """
        async with self._lock:
            if stream not in self._fan_out:
                self._fan_out[stream] = await open_reading_source(
                    self.clients, stream, in_use_seconds=0.0
                )
            return self._fan_out[stream]

    async def find_consumer(self, stream: Stream) -> str:
        """Return the ARN of a stream's consumer. Register it if it is missing."""
        fan_out = stream.fan_out or ""
        if CONSUMER_ARN.fullmatch(fan_out):
            return fan_out
        source = await self.open_kinesis(replace(stream, fan_out=None))
        return (await StreamConsumers(source).require_active(fan_out)).arn


_shared: dict[tuple[asyncio.AbstractEventLoop, Connection], Sources] = {}


def sources(connection: Connection) -> Sources:
    """Return the running loop's sources for a connection. They outlive a batch."""
    key = (asyncio.get_running_loop(), connection)
    if key not in _shared:
        _shared[key] = Sources(connection)
    return _shared[key]


async def close_sources() -> None:
    """Close all sources of the running loop. Later calls open new ones."""
    loop = asyncio.get_running_loop()
    for key in [key for key in _shared if key[0] is loop]:
        await _shared.pop(key).clients.__aexit__(None, None, None)


class IteratorCache:
    """Keeps iterators for the next batch, which saves one call for each shard.

    Each iterator is returned only once, so a failed task's retry doesn't use it again.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[ShardKey, Position], tuple[str, float]] = {}

    def keep(self, shard: ShardKey, after: Position, iterator: str, now: float) -> None:
        """Store the iterator after a position, which Kinesis has just returned."""
        self._entries[shard, after] = (iterator, now)
        while now - next(iter(self._entries.values()))[1] > ITERATOR_SECONDS:
            del self._entries[next(iter(self._entries))]

    def take(self, shard: ShardKey, after: Position, now: float) -> str | None:
        """Remove and return the iterator after a position, unless it has expired."""
        iterator, since = self._entries.pop((shard, after), (None, now))
        return None if now - since > ITERATOR_SECONDS else iterator


def new_paces(clock: Clock) -> Paces:
    """Return a function that returns the pace of a shard, always the same object.

    Its arguments are the shard, and the query's own limits.
    """
    return cache(
        lambda _shard, period_seconds, max_bytes_per_second: Pacing(
            clock.now(), period_seconds, max_bytes_per_second
        )
    )
