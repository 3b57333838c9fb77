"""Test clients that read by fan-out: their memory, and streams that are recreated."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from kinesumer import Config, Kinesumer, Record
from kinesumer.aws.fan_out import FanOutSource
from kinesumer.aws.http import event_stream
from kinesumer.aws.http.connection import RECEIVE_BYTES
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.consuming import page_fetch
from kinesumer.consuming.prefetch import PrefetchBuffer, answer_memory
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.consuming.streams import OpenStream
from kinesumer.errors import StreamRecreatedError
from kinesumer.model.streams import HASH_KEYS, Start, Stream
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog, IncidentLog
from kinesumer.testing.memory import MemoryStore
from tests.support.clock import until
from tests.support.subscriptions import (
    DEADLINE_SECONDS,
    TRANSPORTS,
    FanOutAws,
    fan_out_aws,
)
from tests.support.world import hold

SHARDS, RECORDS, RECORD_BYTES = 4, 800, 4096
EVENT_BYTES = 64 * 1024
SENT_BYTES = EVENT_BYTES * 3 // 2  # at most, with Base64, names and numbers
PATIENCE_SECONDS = 60


# --- memory ---------------------------------------------------------------------------


class Held(NamedTuple):
    """The greatest numbers of bytes that a client held."""

    buffered: int  # counted for ``buffer_bytes``
    received: int  # of one subscription, not yet counted


class Meter:
    """Measures the memory that a client's records take."""

    def __init__(self, client: Kinesumer) -> None:
        self.most = Held(0, 0)
        self._client = client

    def look(self) -> None:
        """Note the present memory if it is the greatest."""
        group = self._client._lifecycle.group
        if group is None:
            return
        received = [0]
        for stream in group.streams.values():
            assert isinstance(stream.source, FanOutSource)
            for subscription in stream.source._subscriptions.values():
                pending = subscription.pending
                size = 0 if pending is None else len(pending.payload)
                received.append(size + unread_bytes(subscription.stream))
        self.most = Held(
            max(self.most.buffered, group.buffer.used),
            max(self.most.received, *received),
        )

    async def watch(self) -> None:
        """Look as often as the event loop permits."""
        while True:
            self.look()
            await asyncio.sleep(0)


def unread_bytes(stream: Any) -> int:
    """Return the bytes that a subscription has received, and nobody has read."""
    queue = stream._queue
    frames = sum(len(frame.payload) for frame in queue._frames)
    return frames + int(queue._reader.pending_bytes)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("buffer_bytes", [EVENT_BYTES // 2, 8 * EVENT_BYTES])
async def test_a_slow_client_holds_its_buffer_and_an_event_of_each_shard(
    environment: pytest.MonkeyPatch, tmp_path: Path, transport: str, buffer_bytes: int
) -> None:
    environment.setattr(page_fetch, "ROOM_SECONDS", 0.05)
    async with fan_out_aws(
        environment,
        tmp_path,
        transport,
        shards=SHARDS,
        event_bytes=EVENT_BYTES,
        subscription_seconds=1.0,
    ) as served:
        served.aws.create_table()
        for number in range(RECORDS):
            text = f"{number:05}".ljust(RECORD_BYTES, "x")
            for shard in range(SHARDS):
                key = HASH_KEYS * shard // SHARDS + 1
                served.aws.put("orders", text.encode(), explicit_hash_key=key)
        served.aws.fault("cut", probability=0.1, count=6)
        got: dict[str, list[int]] = defaultdict(list)
        config = Config(buffer_bytes=buffer_bytes)
        async with Kinesumer("app", config=config) as client:
            meter = Meter(client)
            watching = asyncio.create_task(meter.watch())

            async def handle(record: Record) -> None:
                got[record.shard_id].append(int(record.data[:5]))
                if sum(map(len, got.values())) % 300 == 1:
                    await asyncio.sleep(0.2)  # readers use up all memory meanwhile
                if all(len(got[shard]) == RECORDS for shard in shards):
                    leaving.append(asyncio.create_task(client.leave()))

            shards = served.aws.open_shards("orders")
            leaving: list[asyncio.Task[None]] = []
            stream = Stream("orders", fan_out="billing")
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.run(stream, handle, start=Start.TRIM_HORIZON)
            watching.cancel()
        assert dict(got) == {shard: list(range(RECORDS)) for shard in shards}
        assert served.subscriptions > SHARDS  # some were renewed
        # One event above the limit is granted if nothing else is reserved.
        event = answer_memory(SENT_BYTES)
        assert buffer_bytes // 2 < meter.most.buffered <= buffer_bytes + event
        assert 0 < meter.most.received <= 2 * SENT_BYTES + RECEIVE_BYTES


# --- streams that are recreated -------------------------------------------------------


class Reading:
    """A ShardReader of the stream's first shard, and the texts that it has read."""

    def __init__(self, served: FanOutAws, opened: OpenStream) -> None:
        clock = SystemClock()
        context = ClientContext(
            app="app",
            client_id="a",
            config=Config(),
            store=MemoryStore(clock),
            clock=clock,
            random=Random(1),
            new_id=lambda: "id",
            failure_log=FailureLog(clock),
            incidents=IncidentLog(clock),
        )
        self.texts: list[str] = []
        self._buffer = PrefetchBuffer(1 << 24)
        reader = ShardReader(ReadPlace(context, opened, hold(), self._buffer))
        self.task = asyncio.create_task(reader.run())
        self._taking = asyncio.create_task(self._take())

    async def until(self, count: int) -> None:
        await until(lambda: len(self.texts) >= count, DEADLINE_SECONDS)

    async def stop(self) -> None:
        for task in (self.task, self._taking):
            task.cancel()
        await asyncio.wait([self.task, self._taking])

    async def _take(self) -> None:
        while True:
            batch = await self._buffer.get()
            if batch is not None:
                self.texts += [record.data.decode() for record in batch.records]


@asynccontextmanager
async def reading(served: FanOutAws, **options: Any) -> AsyncIterator[Reading]:
    """Read the stream "orders" by a ShardReader during the block."""
    source = await served.source(**options)
    stream = Stream("orders", fan_out="billing", **options)
    info = await source.describe()
    opened = OpenStream(stream, source, info, Start.TRIM_HORIZON, SystemClock())
    found = Reading(served, opened)
    try:
        yield found
    finally:
        await found.stop()


def recreate(served: FanOutAws) -> None:
    """Delete the stream, and create one of the same name with other records."""
    served.aws.advance(2)
    served.aws.delete_stream("orders")
    served.aws.create_stream("orders")
    served.put("of the new stream")


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("has_records", [False, True])
@pytest.mark.parametrize("fault", [None, "cut", "stall", "exception_event"])
async def test_a_reader_ends_when_its_stream_is_recreated(
    served: FanOutAws,
    environment: pytest.MonkeyPatch,
    fault: Any,
    has_records: bool,
    fallback: bool,
) -> None:
    environment.setattr(event_stream, "SILENCE_SECONDS", 0.3)
    if has_records:
        served.put("a", "b")
    async with reading(served, fan_out_fallback=fallback) as reader:
        await reader.until(2 if has_records else 0)
        while not served.subscriptions:
            await asyncio.sleep(0.01)
        if fault is not None:
            served.aws.fault(fault, count=1)
        recreate(served)
        with pytest.raises(StreamRecreatedError, match=r"orders .* created again"):
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.shield(reader.task)
        assert reader.texts == ["a", "b"] * has_records


async def test_a_reader_ends_although_the_consumers_name_is_registered_again(
    served: FanOutAws,
) -> None:
    served.put("a")
    async with reading(served) as reader:
        await reader.until(1)
        recreate(served)
        consumers = StreamConsumers(await served.polling())
        await consumers.require_active("billing")
        with pytest.raises(StreamRecreatedError):
            async with asyncio.timeout(DEADLINE_SECONDS):
                await asyncio.shield(reader.task)
        assert reader.texts == ["a"]
