"""Encode the frames of an event stream, in which Kinesis pushes events.

The format is AWS's ``application/vnd.amazon.eventstream``. Source:
https://smithy.io/2.0/aws/amazon-eventstream.html.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVENT = {
    ":message-type": "event",
    ":event-type": "SubscribeToShardEvent",
    ":content-type": "application/json",
}


def event_frame(event: Mapping[str, object]) -> bytes:
    """Return the frame of an event with records."""
    return encode_frame(_EVENT, msgspec.json.encode(event))


def without_iterator(body: bytes) -> bytes:
    """Return a response or an event that names neither a next place nor children."""
    answer = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    names = ("Records", "MillisBehindLatest")
    return msgspec.json.encode({name: answer[name] for name in names})


def without_continuation(frame: bytes) -> bytes:
    """Return an event with neither ContinuationSequenceNumber nor ChildShards."""
    (headers_size,) = struct.unpack_from(">I", frame, 4)
    return encode_frame(_EVENT, without_iterator(frame[12 + headers_size : -4]))


def exception_frame(code: str, message: str) -> bytes:
    """Return the frame of an exception."""
    headers = {
        ":message-type": "exception",
        ":exception-type": code,
        ":content-type": "application/json",
    }
    return encode_frame(headers, msgspec.json.encode({"message": message}))


def initial_response() -> bytes:
    """Return the frame with which AWS begins an event stream."""
    headers = {
        ":message-type": "event",
        ":event-type": "initial-response",
        ":content-type": "application/json",
    }
    return encode_frame(headers, b"{}")


def encode_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return a frame with text headers."""
    encoded = b"".join(
        struct.pack(">B", len(name))
        + name.encode()
        + struct.pack(">BH", 7, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    sizes = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    head = sizes + struct.pack(">I", crc32(sizes)) + encoded
    checksum = crc32(payload, crc32(head))
    return b"%b%b%b" % (head, payload, struct.pack(">I", checksum))
