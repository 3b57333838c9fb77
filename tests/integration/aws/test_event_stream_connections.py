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

OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
FRAME = encode_frame(EVENT, b"x" * 100)
CORRUPT = FRAME[:-1] + bytes([FRAME[-1] ^ 1])


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False
        self._is_receiving = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def take(self) -> bytes:
        """Return what was written since the last call."""
        data, self.written = self.written, b""
        return data

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._is_receiving = False

    def resume_reading(self) -> None:
        self._is_receiving = True

    def is_receiving(self) -> bool:
        """Return whether the client lets the server send."""
        return self._is_receiving

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def feed(connection: EventStream, data: bytes) -> None:
    """Let a connection receive bytes, in as many pieces as its buffer needs."""
    while data:
        buffer = connection.get_buffer(-1)
        piece, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))


async def test_a_response_that_comes_after_the_time_out_is_ignored() -> None:
    loop, errors = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    connection = EventStream(bytearray(1024))
    connection.connection_made(Transport())
    connection.send(b"request")
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connection.begin(), 0.001)
    feed(connection, OK)
    connection.close()
    await asyncio.sleep(0)
    assert errors == []


# --- slow readers ---


async def test_a_slow_readers_connection_is_not_received_from() -> None:
    connection, transport = EventStream(bytearray(1024)), Transport()
    connection.connection_made(transport)
    connection.send(b"request")
    await asyncio.sleep(0)
    body = chunk(FRAME)
    feed(connection, OK + body[:50])
    await connection.begin()
    assert transport.is_receiving()
    feed(connection, body[50:])
    assert not transport.is_receiving()
    assert await connection.next()
    assert not transport.is_receiving()
    waiting = asyncio.ensure_future(connection.next())
    await asyncio.sleep(0)
    assert transport.is_receiving()
    connection.close()
    with pytest.raises(ConnectionAbortedError):
        await waiting


# --- bodies ---


def responding() -> EventStream:
    """Return a connection that has sent its request."""
    connection = EventStream(bytearray(1024))
    connection.connection_made(Transport())
    connection.send(b"request")
    return connection


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize("step", [1, 7, 1000])
async def test_a_body_in_chunks_is_read_however_it_is_divided(step: int) -> None:
    connection = responding()
    await asyncio.sleep(0)
    pieces = [chunk(FRAME[:50]), chunk(FRAME[50:] + FRAME)]
    sent = OK + b"".join(pieces) + b"0\r\ntrailer: x\r\n\r\n"
    for at in range(0, len(sent), step):
        feed(connection, sent[at : at + step])
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
    connection = EventStream(shared)
    connection.connection_made(Transport())
    connection.send(b"request")
    await asyncio.sleep(0)
    while sent:
        size = draw.randint(1, 3_000)
        feed(connection, sent[:size])
        sent = sent[size:]
        shared[:] = bytes(len(shared))  # as if another connection received
    frames = [await connection.next() for _ in payloads]
    assert [frame and frame.payload for frame in frames] == payloads
    assert await connection.next() is None


async def test_the_rest_of_a_large_frame_is_received_at_once() -> None:
    # Pieces of a fixed size cost a third of the records per CPU second.
    connection = EventStream(bytearray(RECEIVE_BYTES))
    connection.connection_made(Transport())
    connection.send(b"request")
    await asyncio.sleep(0)
    frame = encode_frame(EVENT, b"x" * 10 * STEP_BYTES)
    body = chunk(frame)
    feed(connection, OK + body[:100])
    in_chunk = 100 - (len(body) - len(frame) - 2)
    assert len(connection.get_buffer(-1)) == len(frame) - in_chunk
    feed(connection, body[100:])
    found = await connection.next()
    assert found is not None
    assert len(connection.get_buffer(-1)) == STEP_BYTES
    connection.close()


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    connection = responding()
    await asyncio.sleep(0)
    feed(connection, b"HTTP/1.1 200 OK\r\n\r\n" + FRAME[:30])
    feed(connection, FRAME[30:])
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
    connection = responding()
    await asyncio.sleep(0)
    feed(connection, OK + body)
    with pytest.raises((OSError, SourceUnavailableError), match=message):
        await connection.next()


async def test_a_connection_that_ends_inside_a_chunk_is_an_error() -> None:
    connection = responding()
    await asyncio.sleep(0)
    feed(connection, OK + chunk(FRAME)[:-10])
    connection.eof_received()
    with pytest.raises(ConnectionResetError):
        await connection.next()
