"""Test single connections of event streams."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kinesumer.aws.http.connection import RECEIVE_BYTES
from kinesumer.aws.http.event_stream import STEP_BYTES, EventStream
from kinesumer.errors import SourceUnavailableError
from kinesumer.testing.kinesis.subscription import encode_frame
from tests.support.transports import Wire

OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
FRAME = encode_frame(EVENT, b"x" * 100)
CORRUPT = FRAME[:-1] + bytes([FRAME[-1] ^ 1])


async def responding(shared: bytearray | None = None) -> tuple[EventStream, Wire]:
    """Return a connection that has sent its request, and its other side."""
    connection = EventStream(bytearray(1024) if shared is None else shared)
    wire = Wire(connection)
    connection.send(b"request")
    await asyncio.sleep(0)
    return connection, wire


async def test_a_response_that_comes_after_the_time_out_is_ignored() -> None:
    loop, errors = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    connection, wire = await responding()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connection.begin(), 0.001)
    wire.feed(OK)
    connection.close()
    await asyncio.sleep(0)
    assert errors == []


# --- slow readers ---


async def test_a_slow_readers_connection_is_not_received_from() -> None:
    connection, wire = await responding()
    body = chunk(FRAME)
    wire.feed(OK + body[:50])
    await connection.begin()
    assert wire.is_receiving()
    wire.feed(body[50:])
    assert not wire.is_receiving()
    assert await connection.next()
    assert not wire.is_receiving()
    waiting = asyncio.ensure_future(connection.next())
    await asyncio.sleep(0)
    assert wire.is_receiving()
    connection.close()
    with pytest.raises(ConnectionAbortedError):
        await waiting


# --- bodies ---


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_a_body_in_chunks_is_read_however_it_is_divided(step: int) -> None:
    connection, wire = await responding()
    pieces = [chunk(FRAME[:50]), chunk(FRAME[50:] + FRAME)]
    sent = OK + b"".join(pieces) + b"0\r\ntrailer: x\r\n\r\n"
    for at in range(0, len(sent), step):
        wire.feed(sent[at : at + step])
    assert [await connection.next() for _ in range(3)][2] is None


@pytest.mark.parametrize("seed", range(20))
async def test_frames_are_whole_although_connections_share_a_buffer(seed: int) -> None:
    draw = random.Random(seed)
    payloads = [draw.randbytes(draw.choice([0, 9, 5_000])) for _ in range(20)]
    content = b"".join(encode_frame(EVENT, payload) for payload in payloads)
    sent, most_bytes = OK, draw.choice([7, 300, 20_000])
    while content:
        size = draw.randint(1, most_bytes)
        sent += chunk(content[:size])
        content = content[size:]
    sent += b"0\r\n\r\n"
    shared = bytearray(draw.choice([1, 64, 4_096]))
    connection, wire = await responding(shared)
    while sent:
        size = draw.randint(1, 3_000)
        wire.feed(sent[:size])
        sent = sent[size:]
        shared[:] = bytes(len(shared))  # as if another connection received
    frames = [await connection.next() for _ in payloads]
    assert [frame and frame.payload for frame in frames] == payloads
    assert await connection.next() is None


async def test_the_rest_of_a_large_frame_is_received_at_once() -> None:
    # Pieces of a fixed size cost a third of the records per CPU second.
    connection, wire = await responding(bytearray(RECEIVE_BYTES))
    frame = encode_frame(EVENT, b"x" * 10 * STEP_BYTES)
    body = chunk(frame)
    wire.feed(OK + body[:100])
    in_chunk = 100 - (len(body) - len(frame) - 2)
    assert len(connection.get_buffer(-1)) == len(frame) - in_chunk
    wire.feed(body[100:])
    found = await connection.next()
    assert found is not None
    assert len(connection.get_buffer(-1)) == STEP_BYTES
    connection.close()


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    connection, wire = await responding()
    wire.feed(b"HTTP/1.1 200 OK\r\n\r\n" + FRAME[:30])
    wire.feed(FRAME[30:])
    assert await connection.next()
    connection.eof_received()
    assert await connection.next() is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"5\r\n12345xy", "chunk without an end"),
        (b"what\r\n", "not the size of a chunk"),
        (chunk(CORRUPT), "checksum"),
    ],
)
async def test_a_malformed_body_is_an_error(body: bytes, message: str) -> None:
    connection, wire = await responding()
    wire.feed(OK + body)
    with pytest.raises((OSError, SourceUnavailableError), match=message):
        await connection.next()


async def test_a_connection_that_ends_inside_a_chunk_is_an_error() -> None:
    connection, wire = await responding()
    wire.feed(OK + chunk(FRAME)[:-10])
    connection.eof_received()
    with pytest.raises(ConnectionResetError):
        await connection.next()
