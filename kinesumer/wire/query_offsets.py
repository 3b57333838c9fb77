"""Convert an offset to and from JSON, which Spark stores and shows.

The JSON is ``{"streams": {ARN: STREAM}, "version": 3}``. A STREAM is ``{"created":
SECONDS, "shards": {SHARD_ID: POSITION}}``. It may also have ``anchored`` (SECONDS) and
``from`` (positions, as in ``shards``): these are ``anchored_at`` and ``origin`` of a
StreamOffset. A POSITION is one of:

- ``{"after": SEQUENCE_NUMBER, "seen": SECONDS}``, with ``"sub"`` if the position is in
  an aggregate
- ``{"at": SEQUENCE_NUMBER, "seen": SECONDS}``, in ``from`` only
- ``{"start": "TRIM_HORIZON"}``, or ``{"start": "AT_TIMESTAMP", "time": SECONDS}``
- ``{"end": true}``, with ``"seen"`` if the time is known

The SECONDS of ``seen`` are rounded down to whole milliseconds.

If this would be longer than MAX_PLAIN_BYTES, the JSON is ``{"version": 3, "zlib":
TEXT}``: the streams, as JSON that is compressed with zlib and then written in Base64.
There, sequence numbers are hexadecimal (``0x…``), which zlib makes shorter.

Version 1 had no compressed streams. Version 2 had lists of positions, as described in
``position_lists``. Both can be read.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import (
    BEGINNING,
    END,
    WHOLE_RECORD,
    After,
    At,
    End,
    Offset,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.wire.fields import is_sequence_number
from kinesumer.wire.position_lists import unpack

VERSION = 3
MAX_PLAIN_BYTES = 4096  # some 30 shards
# Offsets of 100,000 shards, with the first records of a batch, have half as much.
MAX_STREAMS_BYTES = 64 << 20
_HEXADECIMAL = re.compile("0x[0-9a-f]{1,108}")  # AWS allows 129 decimal digits


def to_json(offset: Offset) -> dict[str, Any]:
    """Return an offset as JSON objects. Equal offsets result in equal JSON texts.

    The offset before the first batch has no streams, and is ``{}``.
    """
    if not offset:
        return {}
    plain = {"streams": _streams_to_json(offset, str), "version": VERSION}
    if len(json.dumps(plain)) <= MAX_PLAIN_BYTES:
        return plain
    streams = json.dumps(_streams_to_json(offset, _hexadecimal), separators=(",", ":"))
    compressed = base64.b64encode(zlib.compress(streams.encode()))
    return {"version": VERSION, "zlib": compressed.decode()}


def from_json(value: Any) -> Offset:
    """Return an offset from Spark's log. Raises CorruptOffsetError if it is invalid."""
    if value == {}:
        return {}
    try:
        version = value["version"]
        if type(version) is not int or not 1 <= version <= VERSION:
            raise ValueError(f"the version must be 1, 2 or 3, not {version!r:.20}")
        is_compressed = version == VERSION and "zlib" in value
        streams = _decompress(value["zlib"]) if is_compressed else value["streams"]
        read = partial(_positions_from_json, has_lists=version == 2)
        return {
            arn: StreamOffset(
                _seconds(stream["created"]),
                read(stream["shards"]),
                _seconds(stream.get("anchored", 0.0)),
                read(stream.get("from", {})),
            )
            for arn, stream in streams.items()
        }
    except KeyError as error:
        raise _corrupt(value, f"{error} is missing") from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise _corrupt(value, str(error)) from error


def _decompress(text: object) -> Any:
    if not isinstance(text, str):
        raise TypeError("zlib must be a text")
    stream = zlib.decompressobj()
    try:
        encoded = base64.b64decode(text, validate=True)
        streams = stream.decompress(encoded, MAX_STREAMS_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not stream.eof or stream.unused_data:
        raise ValueError("the compressed streams are cut off or too long")
    return json.loads(streams)


def _streams_to_json(
    offset: Offset, write_number: Callable[[str], str]
) -> dict[str, Any]:
    write = partial(_positions_to_json, write_number=write_number)
    streams = {}
    for arn, stream in sorted(offset.items()):
        value: dict[str, Any] = {"created": stream.created_at}
        if stream.anchored_at:
            value["anchored"] = stream.anchored_at
        if stream.origin:
            value["from"] = write(stream.origin)
        value["shards"] = write(stream.shards)
        streams[arn] = dict(sorted(value.items()))
    return streams


def _positions_to_json(
    positions: Mapping[str, ShardPosition], write_number: Callable[[str], str]
) -> dict[str, Any]:
    return {
        shard_id: _position_to_json(_whole_millis(positions[shard_id]), write_number)
        for shard_id in sorted(positions)
    }


def _positions_from_json(
    value: Mapping[str, Any], *, has_lists: bool
) -> dict[str, ShardPosition]:
    if not isinstance(value, dict):
        raise TypeError(f"shards must be an object, not {value!r:.40}")
    lists = {key: item for key, item in value.items() if isinstance(item, list)}
    if lists and not has_lists:
        raise TypeError("only version 2 has lists of positions")
    listed = unpack(lists, _position_from_json)
    single = {key: item for key, item in value.items() if key not in lists}
    if twice := listed.keys() & single.keys():
        raise ValueError(f"{min(twice):.40} has two positions")
    return {
        shard_id: _whole_millis(_position_from_json(position))
        for shard_id, position in (listed | single).items()
    }


def _position_to_json(
    position: ShardPosition, write_number: Callable[[str], str]
) -> dict[str, Any]:
    match position:
        case End(seen=seen):
            return {"end": True, "seen": seen} if seen else {"end": True}
        case Start(type=type_, timestamp=None):
            return {"start": type_}
        case Start(type=type_, timestamp=timestamp):
            return {"start": type_, "time": timestamp}
        case At(sequence_number=number, seen=seen):
            return {"at": write_number(number), "seen": seen}
    number, sub = position.position
    value = {"after": write_number(number), "seen": position.seen}
    return value if sub is None else {**value, "sub": sub}


def _position_from_json(value: Any) -> ShardPosition:
    if not isinstance(value, dict):
        raise TypeError(f"a position must be an object, not {value!r:.40}")
    if value.get("end") is True:
        return End(_seconds(value["seen"])) if "seen" in value else END
    if "at" in value:
        return At(_sequence_number(value["at"]), _seconds(value["seen"]))
    if "after" in value:
        number, sub = _sequence_number(value["after"]), value.get("sub")
        if sub is not None and (type(sub) is not int or not 0 <= sub < WHOLE_RECORD):
            raise ValueError("a sub-sequence number is out of range")
        return After(Position(number, sub), _seconds(value["seen"]))
    if value["start"] == "AT_TIMESTAMP":
        return Start(type="AT_TIMESTAMP", timestamp=_seconds(value["time"]))
    if value["start"] == "TRIM_HORIZON":
        return BEGINNING
    raise ValueError("a start must be TRIM_HORIZON or AT_TIMESTAMP")


def _whole_millis(position: ShardPosition) -> ShardPosition:
    # Round down: no unread record arrived before ``seen``, nor before an earlier time.
    if isinstance(position, Start):
        return position
    return replace(position, seen=_floor(position.seen))


def _floor(seconds: float) -> float:
    millis = round(seconds * 1000)
    return (millis if millis / 1000 <= seconds else millis - 1) / 1000


def _hexadecimal(number: str) -> str:
    return number if number[:1] == "0" else f"{int(number):#x}"


def _sequence_number(value: Any) -> str:
    text = str(value)
    if _HEXADECIMAL.fullmatch(text):
        text = str(int(text, 16))
    if not is_sequence_number(text) or not isinstance(value, str):
        raise ValueError(f"a sequence number must be digits, not {str(value)[:40]!r}")
    return text


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a time must be a number, not {value!r:.40}")
    if not 0 <= value < YEAR_10000:
        raise ValueError("a time is out of range")
    return float(value)


def _corrupt(value: object, reason: str) -> CorruptOffsetError:
    text = json.dumps(value, default=str)
    return CorruptOffsetError(
        f"an offset in the query's checkpoint isn't kinesumer's ({reason[:200]}): "
        f"{text[:200]}; use a checkpoint of this source, made by this version of "
        "kinesumer or an older one"
    )
