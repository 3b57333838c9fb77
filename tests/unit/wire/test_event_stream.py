"""Test the decoding of event streams, and the errors of corrupt ones."""

from __future__ import annotations

import json
import struct
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.streams import HASH_KEYS, Shard
from kinesumer.testing.kinesis.subscription import encode_frame, exception_frame
from kinesumer.wire.event_stream import (
    MAX_FRAME_BYTES,
    MAX_HEADERS_BYTES,
    Frame,
    FrameReader,
    decode_event,
    decode_frame,
    fault_message,
)
from tests.support.cbor import child, entry
from tests.support.scripted_fan_out import framed

EVENT = {":message-type": "event", ":event-type": "SubscribeToShardEvent"}


def event(*entries: dict[str, Any], **others: Any) -> bytes:
    """Return the payload of an event."""
    fields = {"Records": entries, "MillisBehindLatest": 7}
    return json.dumps(fields | {"ContinuationSequenceNumber": "12"} | others).encode()


# --- frames ---


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 40))
def test_frames_come_out_however_the_bytes_are_divided(
    payloads: list[bytes], step: int
) -> None:
    sent = b"".join(encode_frame(EVENT, payload) for payload in payloads)
    reader, frames = FrameReader(), list[Frame]()
    for at in range(0, len(sent), step):
        frames += reader.frames(sent[at : at + step])
    assert frames == [Frame("event", EVENT[":event-type"], p) for p in payloads]
    assert reader.pending_bytes == 0


def test_a_part_of_a_frame_is_pending() -> None:
    reader = FrameReader()
    assert list(reader.frames(encode_frame(EVENT, b"{}")[:-1])) == []
    assert reader.pending_bytes > 0


def test_an_exception_has_a_code_and_a_message() -> None:
    frame = decode_frame(exception_frame("ResourceInUseException", "replaced"))
    assert (frame.kind, frame.name) == ("exception", "ResourceInUseException")
    assert fault_message(frame) == "replaced"


def test_an_error_has_its_message_in_a_header() -> None:
    headers = {
        ":message-type": "error",
        ":error-code": "InternalFailure",
        ":error-message": "sorry",
    }
    frame = decode_frame(encode_frame(headers, b""))
    assert (frame.kind, frame.name) == ("error", "InternalFailure")
    assert fault_message(frame) == "sorry"


def test_an_exception_without_json_has_no_message() -> None:
    headers = {":message-type": "exception", ":exception-type": "X"}
    assert fault_message(decode_frame(encode_frame(headers, b"<html>"))) == ""


def test_headers_of_all_types_are_skipped_or_read() -> None:
    values = [b"", b"", b"1", b"12", b"1234", b"12345678", b"\x00\x02ab", b"\x00\x01c"]
    values += [b"8" * 8, b"9" * 16]
    headers = b"".join(
        b"\x01h" + bytes([kind]) + value for kind, value in enumerate(values)
    )
    headers += b"\x0d:message-type\x07\x00\x05event" + b"\x0b:event-type\x07\x00\x01X"
    assert decode_frame(framed(headers)) == Frame("event", "X", b"{}")


@pytest.mark.parametrize("at", range(0, 100, 3))
def test_a_changed_byte_is_noticed(at: int) -> None:
    sent = bytearray(encode_frame(EVENT, event(entry())))
    sent[at] ^= 1
    with pytest.raises(SourceUnavailableError, match="corrupt"):
        list(FrameReader().frames(sent))


@pytest.mark.parametrize(
    "headers",
    [
        b"\x01h\x05",  # a number that is longer than the headers
        b"\x01h\x0a",  # an unknown type
        b"\x01h\x07\x00",  # cut off in a length
        b"\x01h\x07\x00\x09abc",  # a value that is longer than the headers
        b"\x01h\x07\x00\x01\xff",  # not UTF-8
        b"\x09h",  # a name that is longer than the frame
        b"\x0d:message-type\x07\x00\x03odd",
        b"",
    ],
)
def test_malformed_headers_are_refused(headers: bytes) -> None:
    with pytest.raises(SourceUnavailableError, match="corrupt"):
        decode_frame(framed(headers))


@pytest.mark.parametrize(
    "sizes",
    [(15, 0), (20, 10), (MAX_FRAME_BYTES + 1, 0), (1 << 20, MAX_HEADERS_BYTES + 1)],
)
def test_impossible_sizes_are_refused(sizes: tuple[int, int]) -> None:
    prelude = struct.pack(">II", *sizes)
    sent = prelude + struct.pack(">I", crc32(prelude))
    with pytest.raises(SourceUnavailableError, match="bytes"):
        list(FrameReader().frames(sent))


# --- events ---


WHOLE = child("0", str(HASH_KEYS - 1))
CHILD = Shard("shardId-000000000001", 0, HASH_KEYS - 1, ("shardId-000000000000",))


@pytest.mark.parametrize(
    ("fields", "continuation", "children"),
    [
        ({}, "12", ()),
        ({"ChildShards": None}, "12", ()),
        ({"ChildShards": []}, "12", ()),
        # an event that names children is the last, even with a continuation
        ({"ChildShards": [WHOLE]}, None, (CHILD,)),
        ({"ChildShards": [WHOLE], "ContinuationSequenceNumber": None}, None, (CHILD,)),
        # an event may lack both
        ({"ContinuationSequenceNumber": None}, None, ()),
        ({"ContinuationSequenceNumber": ""}, None, ()),
    ],
)
def test_an_event_is_a_page_that_goes_on_at_its_continuation(
    fields: dict[str, Any], continuation: str | None, children: tuple[Shard, ...]
) -> None:
    page = decode_event(event(entry(), **fields))
    assert [record.data for record in page.records] == [b"hello"]
    assert (page.next_iterator, page.millis_behind) == (continuation, 7)
    assert page.children == children


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"<html>",
        b"\xff",
        b'{"Records":7}',
        event(entry(SequenceNumber="x")),
        event(ChildShards=[child("5", "4")]),
    ],
)
def test_an_invalid_event_is_refused(payload: bytes) -> None:
    with pytest.raises(SourceUnavailableError):
        decode_event(payload)
