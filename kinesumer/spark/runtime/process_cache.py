"""Retains sources, iterators and read rates in a process between batches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark import TaskContext

from kinesumer.aws.fan_out import open_reading_source
from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.roles import environment_keys
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.core.fair_share import Share, retry_seconds
from kinesumer.model.stream_consumers import CONSUMER_ARN

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.model.positions import Position
    from kinesumer.model.streams import ShardKey, Stream, StreamInfo
    from kinesumer.ports import StreamSource
    from kinesumer.spark.options.parser import Connection

MAX_CACHED_SHARDS = 10_000
# A process describes a stream at most once in this time, since AWS allows only 20
# descriptions a second.
REFRESH_SECONDS = 30.0
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
                "sts": connection.sts_endpoint,
            },
            # The driver has read the stream before it runs tasks.
            trusted=TaskContext.get() is not None,
            keys=environment_keys(),
        )
        # By stream: when it was last described, and its description.
        self.infos: dict[Stream, tuple[float, StreamInfo]] = {}
        self._sources: dict[Stream, KinesisSource] = {}
        self._fan_out: dict[Stream, StreamSource] = {}
        self._lock = asyncio.Lock()

    async def open(self, stream: Stream) -> KinesisSource:
        """Return the source for a stream, which uses the stream's role and region."""
        # All shards of a task call this at the same time. Open only one source.
        async with self._lock:
            if stream not in self._sources:
                self._sources[stream] = await open_source(self.clients, stream)
            return self._sources[stream]

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
        source = await self.open(replace(stream, fan_out=None))
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
        if len(self._entries) > MAX_CACHED_SHARDS:
            del self._entries[next(iter(self._entries))]

    def take(self, shard: ShardKey, after: Position, now: float) -> str | None:
        """Remove and return the iterator after a position, unless it has expired."""
        iterator, since = self._entries.pop((shard, after), (None, now))
        return None if now - since > ITERATOR_SECONDS else iterator


class ShardPace:
    """Decides when to read a shard, which other apps and queries may read, too."""

    __slots__ = ("_is_refused", "_next_at", "share")

    def __init__(self) -> None:
        self.share: Share = Share()
        self._next_at = 0.0
        self._is_refused = False

    def starts_at(self, now: float) -> float:
        """Return the earliest time of a batch's first read."""
        return now if self.share.is_whole else max(now, self._next_at)

    def after_page(self, started: float, period: float, payload_bytes: int) -> float:
        """Return when to read the next page, at least ``period`` after ``started``."""
        self._is_refused = False
        wait = period
        if not self.share.is_whole:
            shared = self.share.pause_seconds(payload_bytes)
            if shared > period:
                self.share.grow(shared)
            wait = max(period, shared)
        self._next_at = started + wait
        return self._next_at

    def after_throttle(self, now: float, period: float, jitter: float) -> float:
        """Return when to try again after a throttled read."""
        if not self._is_refused:
            self.share.cut(now, 1 / period if period else self.share.rate)
            self._is_refused = True
        self._next_at = now + retry_seconds(jitter)
        return self._next_at


def new_paces() -> Callable[[ShardKey], ShardPace]:
    """Return a function that returns the pace of each shard, always the same object."""
    return lru_cache(MAX_CACHED_SHARDS)(lambda _shard: ShardPace())
