"""Test what subscriptions hold, and how their connections end and are limited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kinesumer.aws.http.connection import RECEIVE_BYTES
from kinesumer.aws.http.event_stream import SILENCE_SECONDS, FrameQueue
from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.testing.kinesis.subscription import encode_frame
from tests.support.subscriptions import (
    FIRST_SHARD,
    TRANSPORTS,
    FanOutAws,
    Reader,
    fan_out_aws,
)
from tests.support.world import World

EVENT_BYTES = 64 * 1024


def shard_id(number: int) -> str:
    return f"shardId-{number:012}"


def put_to_all(served: FanOutAws, shards: int, text: str) -> None:
    for number in range(shards):
        key = HASH_KEYS * number // shards + 1
        served.aws.put("orders", text.encode(), explicit_hash_key=key)


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


EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
FIRST, SECOND = encode_frame(EVENT, b"first"), encode_frame(EVENT, b"second")


def corrupt(frame: bytes) -> bytes:
    return frame[:-5] + bytes([frame[-5] ^ 1]) + frame[-4:]


class Receiver:
    """A frame queue, and whether it lets the connection receive."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.queue = FrameQueue(
            lambda: self.changes.append("pause"), lambda: self.changes.append("resume")
        )

    def is_receiving(self) -> bool:
        return self.changes[-1:] != ["pause"]

    async def next(self) -> bytes | None:
        frame = await self.queue.next()
        return None if frame is None else bytes(frame.payload)


async def test_nothing_is_received_while_a_frame_waits_or_is_in_use(
    world: World,
) -> None:
    receiver = Receiver()
    receiver.queue.feed(FIRST + SECOND)
    assert not receiver.is_receiving()
    assert await receiver.next() == b"first"
    assert await receiver.next() == b"second"
    assert not receiver.is_receiving()
    taking = asyncio.ensure_future(receiver.next())
    await asyncio.sleep(0)
    assert receiver.is_receiving()
    receiver.queue.feed(FIRST[:5])
    assert receiver.is_receiving()  # the frame must be completed
    receiver.queue.feed(FIRST[5:])
    assert await taking == b"first"
    assert receiver.changes == ["pause", "resume", "pause"]


async def test_the_frames_before_the_end_come_first(world: World) -> None:
    receiver = Receiver()
    receiver.queue.feed(FIRST)
    receiver.queue.end(ConnectionResetError("reset"))
    assert await receiver.next() == b"first"
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await receiver.next()


async def test_the_end_comes_while_the_reader_waits(world: World) -> None:
    receiver = Receiver()
    taking = asyncio.ensure_future(receiver.next())
    await asyncio.sleep(1)
    receiver.queue.end()
    assert await taking is None
    assert await receiver.next() is None


async def test_an_end_inside_a_frame_is_an_error(world: World) -> None:
    receiver = Receiver()
    receiver.queue.feed(FIRST + SECOND[:-1])
    receiver.queue.end()
    assert await receiver.next() == b"first"
    with pytest.raises(ConnectionResetError, match="middle of a frame"):
        await receiver.next()


async def test_nothing_that_follows_a_corrupt_frame_is_taken(world: World) -> None:
    # The records of the corrupt event would be missing.
    receiver = Receiver()
    with pytest.raises(SourceUnavailableError, match="corrupt") as found:
        receiver.queue.feed(corrupt(FIRST))
    receiver.queue.end(found.value)
    receiver.queue.feed(SECOND)
    with pytest.raises(SourceUnavailableError, match="corrupt"):
        await receiver.next()


async def test_a_silent_subscription_is_noticed(world: World) -> None:
    receiver = Receiver()
    began = world.loop.time()
    with pytest.raises(TimeoutError):
        await receiver.next()
    assert SILENCE_SECONDS <= world.loop.time() - began < SILENCE_SECONDS + 1
    receiver.queue.feed(FIRST)
    assert await receiver.next() == b"first"


async def test_a_frame_that_arrives_slowly_is_no_silence(world: World) -> None:
    receiver = Receiver()
    taking = asyncio.ensure_future(receiver.next())
    for at in range(0, len(FIRST), 20):
        await asyncio.sleep(SILENCE_SECONDS * 0.9)
        receiver.queue.feed(FIRST[at : at + 20])
    assert await taking == b"first"
