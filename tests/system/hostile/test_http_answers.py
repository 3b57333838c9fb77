"""Test that any head, and any bytes of an event stream, are read or refused."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.aws.http import event_stream
from kinesumer.aws.http.connection import (
    CHUNKED,
    RECEIVE_BYTES,
    MalformedAnswerError,
    read_framing,
)
from kinesumer.aws.http.event_stream import EventStream
from kinesumer.errors import SourceUnavailableError
from kinesumer.testing.kinesis.subscription import encode_frame
from kinesumer.wire.event_stream import (
    FrameReader,
    decode_event,
    decode_frame,
    fault_message,
)
from tests.support.scripted_fan_out import framed
from tests.support.transports import Wire
from tests.system.hostile.strategies import bodies, with_examples

EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}
CORPUS = [
    b"",
    b"null",
    b"[" * 100_000,
    b'{"Records":[]}',
    b'{"Records":[],"ContinuationSequenceNumber":null,"ChildShards":null}',
    b'{"Records":[],"ContinuationSequenceNumber":"x","MillisBehindLatest":1e99}',
    b'{"Records":[{"SequenceNumber":"-1"}],"ContinuationSequenceNumber":"1"}',
    b'{"Records":[],"ChildShards":[{"ShardId":"","ParentShards":[]}]}',
    b'{"message":7}',
    b'{"message":"\xff"}',
]
events = bodies().map(
    lambda body: body.replace(b"NextShardIterator", b"ContinuationSequenceNumber")
)


@given(st.lists(st.binary(max_size=80), max_size=4))
@example([b"\xff" * 12])
@example([encode_frame(EVENT, b"{}")[:20], b"\x00" * 40])
def test_any_bytes_are_frames_or_corrupt(pieces: list[bytes]) -> None:
    reader = FrameReader()
    with suppress(SourceUnavailableError):
        for piece in pieces:
            list(reader.frames(piece))
    assert reader.pending_bytes <= sum(map(len, pieces))


@given(st.binary(max_size=60), st.binary(max_size=20))
@example(b"\x00\x00", b"")
@example(b"\x01h\x07\xff\xff", b"")
@example(b"\xff" * 50, b"")
def test_any_headers_are_read_or_corrupt(headers: bytes, payload: bytes) -> None:
    with suppress(SourceUnavailableError):
        decode_frame(framed(headers, payload))


@given(events)
@with_examples(CORPUS)
def test_any_payload_is_an_event_or_corrupt(payload: bytes) -> None:
    with suppress(SourceUnavailableError):
        page = decode_event(payload)
        assert page.next_iterator is None or not page.children
    frame = decode_frame(encode_frame(EVENT, payload))
    assert isinstance(fault_message(frame), str)


# --- floods ---


async def test_a_chunked_event_stream_is_examined_in_steps() -> None:
    connection = EventStream(bytearray(RECEIVE_BYTES))
    Wire(connection)
    connection.send(b"")
    await asyncio.sleep(0)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    frame = encode_frame(EVENT, b"{}")
    rest = head + b"".join(b"1\r\n%c\r\n" % byte for byte in frame * 500)
    while rest:
        room = connection.get_buffer(-1)
        assert len(room) <= event_stream.STEP_BYTES
        part, rest = rest[: len(room)], rest[len(room) :]
        room[: len(part)] = part
        connection.buffer_updated(len(part))
    for _ in range(500):
        assert await connection.next() == decode_frame(frame)
    connection.close()
    connection.connection_lost(None)
    await connection.wait_closed()


names = st.sampled_from(
    [b"Content-Length", b"content-length", b"Transfer-Encoding", b"TRANSFER-ENCODING"]
) | st.sampled_from([b"X", b"X-Content-Length", b"Connection"])
colons = st.sampled_from([b":", b": ", b":\t", b" :", b"\t: "])
values = st.sampled_from(
    [b"0", b"3", b"+3", b"3,3", b"0x3", b"chunked", b"Chunked", b"gzip, chunked", b""]
) | st.binary(max_size=5)
ends = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\n ", b" \r\n"])
lines = st.tuples(names, colons, values, ends).map(b"".join)


@example([b"Content-Length: 3\r\n", b"Content-Length: 3\r\n"])
@example([b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"])
@example([b"Transfer-Encoding: chunked\r\n"])
@given(st.lists(lines, max_size=4))
def test_an_accepted_head_tells_the_size_once_however_it_is_read(
    fields: list[bytes],
) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + b"".join(fields) + b"\r\n"
    if b"\r\n\r\n" in head[:-4]:
        return  # the head ends there
    try:
        framing = read_framing(head)
    except MalformedAnswerError:
        return
    # The most lenient reader of all takes any end of a line and any space.
    parts = [line.partition(b":") for line in re.split(b"[\r\n]", head)]
    found = [(name.strip().lower(), value.strip()) for name, _, value in parts]
    sizes = [each for each in found if each[0] == b"content-length"]
    codings = [each for each in found if each[0] == b"transfer-encoding"]
    if framing is None:
        assert not sizes
        assert not codings
    elif framing == CHUNKED:
        assert not sizes
        assert [value.lower() for _, value in codings] == [b"chunked"]
    else:
        assert not codings
        assert [int(value) for _, value in sizes] == [framing]
