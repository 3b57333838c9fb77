"""Decode the frames of SubscribeToShard's event stream.

The format is AWS's ``application/vnd.amazon.eventstream``: a prelude of two lengths
and their CRC-32, headers, a payload, and a CRC-32 of everything before it. Source:
https://smithy.io/2.0/aws/amazon-eventstream.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

import msgspec

from kinesumer.errors import SourceUnavailableError
from kinesumer.model.records import Page, Record
from kinesumer.wire.cbor import Buffer, new_body
from kinesumer.wire.records import (
    UNDECODED,
    ChildShard,
    check_records,
    decode_json,
    read_child,
)

_PRELUDE = struct.Struct(">III")
_CRC = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
PRELUDE_BYTES = _PRELUDE.size
# Greatest accepted size of a frame. An event has at most 10 MiB of data, in Base64.
MAX_FRAME_BYTES = 24 * 1024 * 1024
# Kinesis sends about 100 bytes. More would only take time, which headers of two bytes
# take most of.
MAX_HEADERS_BYTES = 16 * 1024


# The size of a header's value by its type: true, false, a byte, a short, an integer, a
# long, bytes, a text, a timestamp and a UUID. None if the value begins with its size.
_SIZES = (0, 0, 1, 2, 4, 8, None, None, 8, 16)
_TEXT = 7


class Frame(NamedTuple):
    """One message: an event, an exception or an error."""

    kind: str  # the header ``:message-type``
    name: str  # the event's type, or the code of the exception or error
    payload: Buffer  # JSON; an error has none
    message: str = ""  # the header ``:error-message``


class FrameReader:
    """Divides the bytes of a response into frames."""

    def __init__(self) -> None:
        self._begin_frame()

    def _begin_frame(self) -> None:
        # Its prelude, and then the whole frame, of which some bytes are still missing.
        self._frame = memoryview(bytearray(PRELUDE_BYTES))
        self.pending_bytes: int = 0  # of a frame that is not complete

    @property
    def missing_bytes(self) -> int:
        """The bytes that the current frame, or its prelude, still lacks."""
        return len(self._frame) - self.pending_bytes

    def frames(self, data: Buffer) -> Iterator[Frame]:
        """Take the next bytes of the response, and yield the frames they complete.

        Iterate to the end. Raise SourceUnavailableError if a frame is corrupt.
        """
        rest = memoryview(data)
        while rest:
            part = rest[: self.missing_bytes]
            rest = rest[len(part) :]
            begin = self.pending_bytes
            self.pending_bytes += len(part)
            self._frame[begin : self.pending_bytes] = part
            if self.missing_bytes:
                return
            complete = self._frame
            if len(complete) == PRELUDE_BYTES:  # every frame is longer
                self._frame = memoryview(new_body(frame_size(complete)))
                self._frame[:PRELUDE_BYTES] = complete
            else:
                self._begin_frame()
                yield decode_frame(complete)


def frame_size(prelude: Buffer) -> int:
    """Return the size in bytes of the frame that begins with a prelude.

    Raise SourceUnavailableError if the prelude is corrupt.
    """
    size, headers_size, checksum = _PRELUDE.unpack_from(prelude)
    if crc32(memoryview(prelude)[:8]) != checksum:
        raise _corrupt("its prelude has a wrong checksum")
    if headers_size > MAX_HEADERS_BYTES:
        raise _corrupt(f"it has {headers_size:,} bytes of headers")
    if not headers_size + PRELUDE_BYTES + _CRC.size <= size <= MAX_FRAME_BYTES:
        raise _corrupt(f"it has {size:,} bytes, {headers_size:,} of them headers")
    return int(size)


def decode_frame(frame: Buffer) -> Frame:
    """Decode a complete frame. Raise SourceUnavailableError if it is corrupt."""
    view, end = memoryview(frame), len(frame) - _CRC.size
    if crc32(view[:end]) != _CRC.unpack_from(view, end)[0]:
        raise _corrupt("it has a wrong checksum")
    headers_end = PRELUDE_BYTES + _PRELUDE.unpack_from(view)[1]
    headers = _decode_headers(bytes(view[PRELUDE_BYTES:headers_end]))
    kind = headers.get(":message-type", "")
    if kind not in _NAMES:
        raise _corrupt(f"its message type is {kind[:80]!r}")
    message = headers.get(":error-message", "")
    return Frame(kind, headers.get(_NAMES[kind], ""), view[headers_end:end], message)


_NAMES = {
    "event": ":event-type",
    "exception": ":exception-type",
    "error": ":error-code",
}


def _decode_headers(encoded: bytes) -> dict[str, str]:
    """Return the headers that have text values."""
    headers: dict[str, str] = {}
    at, end = 0, len(encoded)
    try:
        while at < end:
            name_end = at + 1 + encoded[at]
            name, kind = encoded[at + 1 : name_end], encoded[name_end]
            at = name_end + 1
            if kind >= len(_SIZES):
                raise _corrupt(f"a header has the unknown type {kind}")
            if (size := _SIZES[kind]) is not None:
                at += size
                continue
            first = at + _LENGTH.size
            at = first + _LENGTH.unpack_from(encoded, at)[0]
            if kind == _TEXT:
                headers[name.decode()] = encoded[first:at].decode()
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise _corrupt(f"a header is malformed ({error})") from error
    if at != end:
        raise _corrupt("a header is longer than the headers")
    return headers


class _Event(msgspec.Struct, rename="pascal"):
    records: list[Record]
    continuation_sequence_number: str | None = None
    millis_behind_latest: int = 0
    child_shards: list[ChildShard] | None = None


_CALL = "SubscribeToShard"


def decode_event(payload: Buffer) -> Page:
    """Return the page in the payload of a SubscribeToShardEvent.

    Its ``next_iterator`` is the event's continuation sequence number. It may be missing
    without a reason, as that of GetRecords may. Raise SourceUnavailableError if the
    payload isn't an event of Kinesis.
    """
    try:
        records, event = decode_json(payload, _Event)
    except UNDECODED as error:
        raise _corrupt(f"its payload is not an event ({error})") from error
    check_records(records, payload, _CALL)
    continuation = event.continuation_sequence_number
    children = event.child_shards or ()
    # A closed shard's last event names the children in place of a continuation.
    return Page(
        records,
        None if children else continuation or None,
        event.millis_behind_latest,
        tuple(read_child(child, payload, _CALL) for child in children),
        len(payload),
    )


class _Fault(msgspec.Struct):
    message: str = ""


def fault_message(frame: Frame) -> str:
    """Return the text of an exception or an error, or an empty string."""
    if frame.message:
        return frame.message
    try:
        return msgspec.json.decode(frame.payload, type=_Fault).message
    except UNDECODED:
        return ""


def _corrupt(reason: str) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"a frame of SubscribeToShard's event stream is corrupt: {reason}; check which "
        "service responds at the Kinesis endpoint"
    )
