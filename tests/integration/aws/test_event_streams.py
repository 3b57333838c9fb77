"""Test the connections of event streams: how they end and are limited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kinesumer.aws.http.connection import RECEIVE_BYTES
from kinesumer.aws.http.event_stream import FrameQueue
from kinesumer.model.streams import HASH_KEYS, Start
from tests.support.subscriptions import (
    FIRST_SHARD,
    TRANSPORTS,
    FanOutAws,
    Reader,
    fan_out_aws,
)

EVENT_BYTES = 64 * 1024


def shard_id(number: int) -> str:
    return f"shardId-{number:012}"


def put_to_all(served: FanOutAws, shards: int, text: str) -> None:
    for number in range(shards):
        key = HASH_KEYS * number // shards + 1
        served.aws.put("orders", text.encode(), explicit_hash_key=key)


async def readers_of(served: FanOutAws, shards: int) -> list[Reader]:
    """Read all shards, each by a subscription that has begun."""
    source = await served.source()
    readers = [Reader(source, shard_id(number)) for number in range(shards)]
    for reader in readers:
        await reader.change()
    return readers


async def stop(readers: list[Reader]) -> None:
    for reader in readers:
        await reader.stop()


async def test_a_subscription_takes_no_connection_of_those_that_poll(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with fan_out_aws(environment, tmp_path, max_connections=0) as served:
        source = await served.source()
        async with source.connection():
            iterator = await source.get_iterator(FIRST_SHARD, Start.TRIM_HORIZON)
            await source.get_records(iterator, 10)
        assert [shard.shard_id for shard in await source.list_shards()] == [FIRST_SHARD]
        source.release(FIRST_SHARD)


async def test_streams_have_a_connection_each(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with fan_out_aws(environment, tmp_path, "tls", shards=3) as served:
        readers = await readers_of(served, 3)
        put_to_all(served, 3, "a")
        for reader in readers:
            assert await reader.until(1) == ["a"]
            assert reader.errors == []
        assert len(served.clients.event_streams._open) == 3
        await stop(readers)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_closing_leaves_no_task_of_a_subscription(
    environment: pytest.MonkeyPatch, tmp_path: Path, transport: str
) -> None:
    async with fan_out_aws(environment, tmp_path, transport, shards=3) as served:
        source = await served.source()
        for number in range(3):
            iterator = await source.get_iterator(shard_id(number), Start.TRIM_HORIZON)
            await source.get_records(iterator, 10)
        await served.clients.event_streams.close()
        assert not [
            task for task in asyncio.all_tasks() if "Connection.ask" in repr(task)
        ]
        assert not served.clients.event_streams._open


async def test_tls_connections_receive_into_one_buffer(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with fan_out_aws(environment, tmp_path, "tls", shards=3) as served:
        readers = await readers_of(served, 3)
        pool = served.clients.event_streams
        buffers = [
            connection._transport._ssl_protocol.get_buffer(-1)  # type: ignore[union-attr]
            for connection in pool._open
        ]
        assert [buffer.obj is pool._shared for buffer in buffers] == [True] * 3
        text = "a" * 3 * RECEIVE_BYTES
        put_to_all(served, 3, text)
        for reader in readers:
            assert await reader.until(1) == [text]
            assert reader.errors == []
        await stop(readers)


# --- slow readers ---


def held_bytes(queue: FrameQueue) -> int:
    waiting = sum(len(frame.payload) for frame in queue._frames)
    return waiting + queue._reader.pending_bytes


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_slow_readers_hold_one_event_each_and_lose_nothing(
    environment: pytest.MonkeyPatch, tmp_path: Path, transport: str
) -> None:
    shards, records = 6, 100
    limits: dict[str, Any] = {"event_bytes": EVENT_BYTES, "subscription_seconds": 0.6}
    async with fan_out_aws(
        environment, tmp_path, transport, shards=shards, **limits
    ) as served:
        source = await served.source()
        texts = [f"{number:05}" + "x" * EVENT_BYTES for number in range(records)]
        for text in texts:  # 6 MB a shard
            put_to_all(served, shards, text)
        first: list[str] = []
        iterators: list[str] = []
        for number in range(1, shards):
            iterator = await source.get_iterator(shard_id(number), Start.TRIM_HORIZON)
            page = await source.get_records(iterator, 10)
            first += [record.data.decode() for record in page.records]
            assert page.next_iterator
            iterators.append(page.next_iterator)
        # Another shard goes on meanwhile, until the subscriptions have been ended.
        quick = Reader(source, FIRST_SHARD)
        assert await quick.until(records) == texts
        while served.subscriptions < shards + 2:
            await quick.change()
        streams = served.clients.event_streams._open
        held = [held_bytes(stream._queue) for stream in streams]
        assert max(held) <= 2 * EVENT_BYTES + RECEIVE_BYTES
        assert first == [texts[0]] * (shards - 1)
        for number, next_iterator in enumerate(iterators, start=1):
            source.release(shard_id(number))
            got: list[str] = []
            following: str | None = next_iterator
            while len(got) < records - 1:
                assert following
                page = await source.get_records(following, 10)
                got += [record.data.decode() for record in page.records]
                following = page.next_iterator
            assert got == texts[1:]
        await quick.stop()
