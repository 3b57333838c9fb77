"""Test single connections of event streams, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from kinesumer.aws.http.event_stream import EventStreamConnection, RefusedError
from kinesumer.aws.http.http2 import (
    STREAM_WINDOW_BYTES,
    Http2Connection,
    Http2Stream,
)
from kinesumer.errors import SourceUnavailableError
from kinesumer.testing.kinesis.subscription import encode_frame

OK = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HEADERS = [
    (":method", "POST"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/"),
]
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


class Http2Pair:
    """A connection and the server at its other end."""

    def __init__(self) -> None:
        self.client, self.transport = Http2Connection(), Transport()
        self.server = H2Connection(H2Configuration(client_side=False))
        self.client.connection_made(self.transport)
        self.server.initiate_connection()

    def exchange(self) -> None:
        """Let both sides receive what the other has sent."""
        if data := self.transport.take():
            self.server.receive_data(data)
        if data := self.server.data_to_send():
            self.client.data_received(data)

    async def open(self, status: int = 200) -> Http2Stream:
        """Open a stream, to which the server responds with a status."""
        self.exchange()
        stream = await self.client.open(HEADERS, b"{}")
        assert stream is not None
        self.exchange()
        self.server.send_headers(stream.stream_id, [(":status", str(status))])
        self.exchange()
        return stream

    def send(self, stream: Http2Stream, data: bytes) -> None:
        """Send a part of a stream's body, within the limit of a frame."""
        for at in range(0, len(data), 16_384):
            self.server.send_data(stream.stream_id, data[at : at + 16_384])
            self.exchange()
        self.exchange()

    def room(self, stream: Http2Stream) -> int:
        """Return how much the server may send of a stream."""
        return self.server.local_flow_control_window(stream.stream_id)


def feed(connection: EventStreamConnection, data: bytes) -> None:
    """Let a connection receive bytes, in as many pieces as its buffer needs."""
    while data:
        buffer = connection.get_buffer(-1)
        piece, data = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(piece)] = piece
        connection.buffer_updated(len(piece))


async def test_the_server_learns_a_streams_window_before_the_first_request() -> None:
    # With a smaller window than the client counts on, a large event never arrives.
    transport = Transport()
    Http2Connection().connection_made(transport)
    server = H2Connection(H2Configuration(client_side=False))
    server.initiate_connection()
    server.receive_data(transport.written)
    assert server.remote_settings.initial_window_size == STREAM_WINDOW_BYTES
    assert server.remote_settings.enable_push == 0


async def test_a_response_that_comes_after_the_time_out_is_ignored() -> None:
    loop, errors = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    connection = EventStreamConnection(60.0, bytearray(1024))
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


async def test_a_slow_readers_stream_gets_no_more_room() -> None:
    pair = Http2Pair()
    stream = await pair.open()
    frames = 0
    while (room := pair.room(stream)) >= len(FRAME):
        # After the first frame, the reader has one that it does not take.
        count = min(room, 16_384) // len(FRAME)
        pair.send(stream, FRAME * count)
        frames += count
        assert frames * len(FRAME) <= STREAM_WINDOW_BYTES
    for _ in range(frames):
        assert await stream.next()
    assert pair.room(stream) < len(FRAME)  # the last frame is in use
    waiting = asyncio.ensure_future(stream.next())
    await asyncio.sleep(0)
    pair.exchange()
    assert pair.room(stream) > STREAM_WINDOW_BYTES // 2
    pair.send(stream, FRAME)
    assert await waiting


async def test_a_frame_that_fills_the_window_gets_room_until_it_is_whole() -> None:
    pair = Http2Pair()
    stream = await pair.open()
    frame = encode_frame(EVENT, b"x" * 2 * STREAM_WINDOW_BYTES)
    pair.send(stream, frame)
    found = await stream.next()
    assert found is not None
    assert len(found.payload) == 2 * STREAM_WINDOW_BYTES


async def test_a_slow_readers_connection_is_not_received_from() -> None:
    connection, transport = EventStreamConnection(60.0, bytearray(1024)), Transport()
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


# --- bodies over HTTP/1.1 ---


def responding() -> EventStreamConnection:
    """Return a connection that has sent its request."""
    connection = EventStreamConnection(60.0, bytearray(1024))
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
    connection = EventStreamConnection(60.0, shared)
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


# --- the ends of HTTP/2 streams ---


async def test_an_event_stream_ends_when_the_server_ends_it() -> None:
    pair = Http2Pair()
    stream = await pair.open()
    await stream.begin()
    pair.send(stream, FRAME)
    pair.server.end_stream(stream.stream_id)
    pair.exchange()
    assert await stream.next()
    assert await stream.next() is None
    stream.close()  # it has ended already


async def test_an_end_that_arrives_with_the_last_data_loses_nothing() -> None:
    pair = Http2Pair()
    stream = await pair.open()
    frame = encode_frame(EVENT, b"x" * (STREAM_WINDOW_BYTES - 1000))
    for at in range(0, len(frame), 16_384):
        pair.server.send_data(stream.stream_id, frame[at : at + 16_384])
    pair.server.end_stream(stream.stream_id)
    pair.exchange()
    found = await stream.next()
    assert found is not None
    assert len(found.payload) == STREAM_WINDOW_BYTES - 1000
    assert await stream.next() is None


async def test_an_end_that_arrives_with_a_corrupt_frame_does_not_hide_it() -> None:
    pair = Http2Pair()
    stream = await pair.open()
    pair.server.send_data(stream.stream_id, CORRUPT, end_stream=True)
    pair.exchange()
    with pytest.raises(SourceUnavailableError, match="checksum"):
        await stream.next()
    assert not pair.transport.is_closed


async def test_a_refusal_has_the_status_and_a_part_of_the_body() -> None:
    pair = Http2Pair()
    stream = await pair.open(status=400)
    body = b"{}" * STREAM_WINDOW_BYTES
    pair.send(stream, body)
    pair.server.end_stream(stream.stream_id)
    pair.exchange()
    with pytest.raises(RefusedError) as found:
        await stream.begin()
    assert found.value.status == 400
    assert found.value.body == body[:STREAM_WINDOW_BYTES]


async def test_a_corrupt_frame_ends_its_stream_and_no_other() -> None:
    pair = Http2Pair()
    first, second = await pair.open(), await pair.open()
    pair.send(first, CORRUPT)
    pair.send(second, FRAME)
    with pytest.raises(SourceUnavailableError, match="checksum"):
        await first.next()
    assert await second.next()
    pair.exchange()
    assert pair.server.open_inbound_streams == 1


async def test_a_closed_stream_is_cancelled_at_the_server() -> None:
    pair = Http2Pair()
    first, second = await pair.open(), await pair.open()
    first.close()
    pair.exchange()
    assert pair.server.open_inbound_streams == 1
    pair.send(second, FRAME)
    assert await second.next()
    assert not pair.transport.is_closed


async def test_streams_that_a_leaving_server_ignores_end_at_once() -> None:
    pair = Http2Pair()
    first, second = await pair.open(), await pair.open()
    pair.server.close_connection(last_stream_id=first.stream_id)
    pair.client.data_received(pair.server.data_to_send())
    with pytest.raises(ConnectionResetError, match="closes the connection"):
        await second.next()
    assert await pair.client.open(HEADERS, b"{}") is None
    assert not pair.transport.is_closed
    first.close()
    assert pair.transport.is_closed


async def test_a_lost_connection_ends_all_streams_and_opens_none() -> None:
    pair = Http2Pair()
    streams = [await pair.open(), await pair.open()]
    pair.client.connection_lost(None)
    for stream in streams:
        with pytest.raises(ConnectionResetError, match="closed by the server"):
            await stream.next()
    assert await pair.client.open(HEADERS, b"{}") is None
    await pair.client.wait_closed()


async def test_a_connection_that_is_lost_before_its_settings_opens_no_stream() -> None:
    pair = Http2Pair()
    opening = asyncio.ensure_future(pair.client.open(HEADERS, b"{}"))
    await asyncio.sleep(0)
    pair.client.connection_lost(ConnectionResetError("reset"))
    with pytest.raises(ConnectionResetError, match="reset"):
        await opening
