"""Test that any bytes of an event stream are decoded, or refused as corrupt."""

from __future__ import annotations

import struct
from zlib import crc32

from hypothesis import example, given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.local.kinesis.subscription import encode_frame
from kinesumer.wire.event_stream import (
    PRELUDE_BYTES,
    FrameReader,
    decode_event,
    decode_frame,
    fault_message,
)
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


def framed(headers: bytes, payload: bytes) -> bytes:
    """Return a frame with right checksums, whatever its headers are."""
    sizes = struct.pack(
        ">II", PRELUDE_BYTES + len(headers) + len(payload) + 4, len(headers)
    )
    body = sizes + struct.pack(">I", crc32(sizes)) + headers + payload
    return body + struct.pack(">I", crc32(body))


@given(st.lists(st.binary(max_size=80), max_size=4))
@example([b"\xff" * 12])
@example([encode_frame(EVENT, b"{}")[:20], b"\x00" * 40])
def test_any_bytes_are_frames_or_corrupt(pieces: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for piece in pieces:
            list(reader.frames(piece))
    except SourceUnavailableError:
        pass
    assert reader.pending_bytes <= sum(map(len, pieces))


@given(st.binary(max_size=60), st.binary(max_size=20))
@example(b"\x00\x00", b"")
@example(b"\x01h\x07\xff\xff", b"")
@example(b"\xff" * 50, b"")
def test_any_headers_are_read_or_corrupt(headers: bytes, payload: bytes) -> None:
    try:
        decode_frame(framed(headers, payload))
    except SourceUnavailableError:
        pass


@given(events)
@with_examples(CORPUS)
def test_any_payload_is_an_event_or_corrupt(payload: bytes) -> None:
    try:
        page = decode_event(payload)
        assert page.next_iterator is None or not page.children
    except SourceUnavailableError:
        pass
    frame = decode_frame(encode_frame(EVENT, payload))
    assert isinstance(fault_message(frame), str)
