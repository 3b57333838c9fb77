"""Serve streams with fan-out, and read their shards or receive the events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kinesumer.aws import fan_out, stream_consumers
from kinesumer.aws.fan_out import open_reading_source
from kinesumer.aws.kinesis import KinesisSource, open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.config import MAX_CONNECTIONS
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, Stream
from kinesumer.ports import StreamSource
from kinesumer.testing import UNTHROTTLED, EmbeddedAws
from kinesumer.testing.kinesis.limits import Limits
from kinesumer.testing.trial.acceptance.contract.consumers import SubscriptionReader
from tests.support.tls_front import tls_front

DEADLINE_SECONDS = 10.0  # a reader that takes longer has failed
FIRST_SHARD = "shardId-000000000000"
TRANSPORTS = ["plain", "tls"]
RATES = {name: getattr(UNTHROTTLED, name) for name in Limits.__slots__}


class FanOutAws:
    """An embedded AWS with the stream "orders", and clients that subscribe to it."""

    def __init__(self, aws: EmbeddedAws, clients: ClientFactory) -> None:
        self.aws, self.clients = aws, clients

    async def source(self, consumer: str = "billing", **options: Any) -> StreamSource:
        """Return a source that reads the stream by fan-out."""
        stream = Stream("orders", fan_out=consumer, **options)
        return await open_reading_source(self.clients, stream)

    async def polling(self) -> KinesisSource:
        return await open_source(self.clients, Stream("orders"))

    def put(self, *texts: str) -> list[str]:
        """Append records to the first open shard, and return their numbers."""
        puts = [
            self.aws.put("orders", text.encode(), explicit_hash_key=0) for text in texts
        ]
        return [number for _, number in puts]

    @property
    def subscriptions(self) -> int:
        return self.aws.journal.count("kinesis", "SubscribeToShard")


@asynccontextmanager
async def fan_out_aws(
    patch: pytest.MonkeyPatch,
    directory: Path,
    transport: str = "plain",
    *,
    shards: int = 1,
    max_connections: int = MAX_CONNECTIONS,
    **limits: Any,
) -> AsyncIterator[FanOutAws]:
    """Serve the stream "orders" during the block. ``limits`` are fields of Limits."""
    quick = {
        **RATES,
        "delivery_seconds": 0.005,
        "idle_event_seconds": 0.1,
        "subscription_replace_seconds": 0.0,
    }
    patch.setattr(fan_out, "CALL_SECONDS", 0.02)
    patch.setattr(stream_consumers, "LOOK_SECONDS", 0.02)
    async with AsyncExitStack() as stack:
        aws = EmbeddedAws(limits=Limits(**(quick | limits)))
        await stack.enter_async_context(aws)
        for name, value in aws.environment().items():
            patch.setenv(name, value)
        if transport == "tls":
            front = await stack.enter_async_context(tls_front(aws.url, directory))
            patch.setenv("AWS_ENDPOINT_URL", front.url)
            patch.setenv("AWS_CA_BUNDLE", str(front.authority))
        aws.create_stream("orders", shards)
        factory = ClientFactory(max_connections=max_connections)
        clients = await stack.enter_async_context(factory)
        yield FanOutAws(aws, clients)


class Reader(SubscriptionReader):
    """Reads the first shard from its beginning, unless told otherwise."""

    def __init__(
        self,
        source: StreamSource,
        shard_id: str = FIRST_SHARD,
        after: Position | Start = Start.TRIM_HORIZON,
    ) -> None:
        super().__init__(source, shard_id, after, DEADLINE_SECONDS)


DELIVERY_SECONDS = 0.07
# What is not sent within this time is not sent: the server's clock stands still.
SILENCE_SECONDS = 0.1


class Events:
    """Receives the events of one subscription in the background."""

    def __init__(self, stream: Any) -> None:
        self.received: list[dict[str, Any]] = []
        self._stream = stream
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._receive())
        self._task.add_done_callback(lambda _: self._changed.set())

    async def first(self, count: int) -> list[dict[str, Any]]:
        """Wait for some events, and return them."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.received) < count:
                if self._task.done():
                    self._task.result()
                    raise AssertionError(f"it ended after {self.received}")
                self._changed.clear()
                await self._changed.wait()
        return self.received[:count]

    async def data(self, count: int) -> list[bytes]:
        """Wait for some records, and return all of their data."""
        events = 0
        while len(self.data_now) < count:
            events += 1
            await self.first(events)
        return self.data_now

    @property
    def data_now(self) -> list[bytes]:
        """The data of the records that have been received."""
        return [record["Data"] for each in self.received for record in each["Records"]]

    async def silence(self) -> int:
        """Return the number of events when no more arrive."""
        count = -1
        while count != len(self.received):
            count = len(self.received)
            await asyncio.sleep(SILENCE_SECONDS)
        assert not self._task.done()
        return count

    async def end(self) -> None:
        """Wait for the end of the subscription. Raise the error that ended it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            await asyncio.shield(self._task)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self._stream.close()

    async def _receive(self) -> None:
        async for event in self._stream:
            self.received.append(event["SubscribeToShardEvent"])
            self._changed.set()


def put(aws: EmbeddedAws, *texts: bytes) -> list[str]:
    """Put records that can be delivered at once. Return their sequence numbers."""
    numbers = [aws.put("orders", text, explicit_hash_key=0)[1] for text in texts]
    aws.advance(DELIVERY_SECONDS)
    return numbers
