"""Test what a subscription holds: whole frames, none after a corrupt one."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.aws.http.event_stream import SILENCE_SECONDS, FrameQueue
from kinesumer.errors import SourceUnavailableError
from kinesumer.testing.kinesis.subscription import encode_frame
from tests.support.world import World

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


async def test_a_frame_is_taken_when_all_of_it_has_arrived(world: World) -> None:
    receiver = Receiver()
    taking = asyncio.ensure_future(receiver.next())
    for at in range(len(FIRST)):
        await asyncio.sleep(0.01)
        assert not taking.done()
        receiver.queue.feed(FIRST[at : at + 1])
    assert await taking == b"first"


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


async def test_a_frame_that_arrives_slowly_is_no_silence(world: World) -> None:
    receiver = Receiver()
    taking = asyncio.ensure_future(receiver.next())
    for at in range(0, len(FIRST), 20):
        await asyncio.sleep(SILENCE_SECONDS * 0.9)
        receiver.queue.feed(FIRST[at : at + 20])
    assert await taking == b"first"


async def test_a_queue_that_was_silent_takes_what_comes_later(world: World) -> None:
    receiver = Receiver()
    with pytest.raises(TimeoutError):
        await receiver.next()
    receiver.queue.feed(FIRST)
    assert await receiver.next() == b"first"
