"""Converts an offset to and from JSON, which Spark stores and shows.

The JSON is ``{"streams": {ARN: STREAM}, "version": 2}``. A STREAM is ``{"created":
SECONDS, "shards": {SHARD_ID: POSITION}}``. It may also have ``anchored`` (SECONDS) and
``from`` (positions, as in ``shards``): these are ``anchored_at`` and ``origin`` of a
StreamOffset. A POSITION is one of:

- ``{"after": SEQUENCE_NUMBER, "seen": SECONDS}``, with ``"sub"`` if the position is in
  an aggregate
- ``{"at": SEQUENCE_NUMBER, "seen": SECONDS}``, in ``from`` only
- ``{"start": "TRIM_HORIZON"}``, or ``{"start": "AT_TIMESTAMP", "time": SECONDS}``
- ``{"end": true}``, with ``"seen"`` if the time is known

If there are many shards, ``shards`` and ``from`` contain lists of positions instead, in
the format of ``position_lists``. Version 1 had no lists. The SECONDS of ``seen`` are
rounded down to whole milliseconds.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.spark.offsets.model import BEGINNING, END, After, At, End, StreamOffset
from kinesumer.spark.offsets.position_lists import pack, unpack
from kinesumer.wire.fields import is_sequence_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.spark.offsets.model import Offset, ShardPosition

VERSION = 2
# If there are more positions in a stream than this, they are written as lists, which
# are shorter but harder to read.
MAX_IN_FULL = 16


def to_json(offset: Offset) -> dict[str, Any]:
    """Return an offset as JSON objects. Equal offsets result in equal JSON texts.

    The offset before the first batch has no streams, and is ``{}``.
    """
    if not offset:
        return {}
    streams = {arn: _stream_to_json(offset[arn]) for arn in sorted(offset)}
    return {"streams": streams, "version": VERSION}


def from_json(value: Any) -> Offset:
    """Return an offset from Spark's log. Raises CorruptOffsetError if it is invalid."""
    if value == {}:
        return {}
    try:
        version = value["version"]
        if type(version) is not int or version not in (1, VERSION):
            raise ValueError(f"the version must be 1 or 2, not {version!r:.20}")
        lists = version > 1
        return {
            arn: StreamOffset(
                _seconds(stream["created"]),
                _positions_from_json(stream["shards"], lists=lists),
                _seconds(stream.get("anchored", 0.0)),
                _positions_from_json(stream.get("from", {}), lists=lists),
            )
            for arn, stream in value["streams"].items()
        }
    except KeyError as error:
        raise _corrupt(value, f"{error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _corrupt(value, str(error)) from error


def _stream_to_json(stream: StreamOffset) -> dict[str, Any]:
    value: dict[str, Any] = {"created": stream.created_at}
    if stream.anchored_at:
        value["anchored"] = stream.anchored_at
    if stream.origin:
        value["from"] = _positions_to_json(stream.origin)
    value["shards"] = _positions_to_json(stream.shards)
    return {key: value[key] for key in sorted(value)}


def _positions_to_json(positions: Mapping[str, ShardPosition]) -> dict[str, Any]:
    whole = {
        shard_id: _whole_millis(positions[shard_id]) for shard_id in sorted(positions)
    }
    if len(whole) > MAX_IN_FULL:
        return pack(whole, _position_to_json)
    return {
        shard_id: _position_to_json(position) for shard_id, position in whole.items()
    }


def _positions_from_json(
    value: Mapping[str, Any], *, lists: bool
) -> dict[str, ShardPosition]:
    if not isinstance(value, dict):
        raise TypeError(f"shards must be an object, not {value!r:.40}")
    packed = {key: item for key, item in value.items() if isinstance(item, list)}
    if packed and not lists:
        raise TypeError("version 1 has no lists of positions")
    positions = unpack(packed, _position_from_json)
    for shard_id in value.keys() - packed.keys():
        if shard_id in positions:
            raise ValueError(f"{shard_id:.40} has two positions")
        positions[shard_id] = _position_from_json(value[shard_id])
    return {
        shard_id: _whole_millis(position) for shard_id, position in positions.items()
    }


def _position_to_json(position: ShardPosition) -> dict[str, Any]:
    match position:
        case End(seen=seen):
            return {"end": True, "seen": seen} if seen else {"end": True}
        case Start(type=type_, timestamp=None):
            return {"start": type_}
        case Start(type=type_, timestamp=timestamp):
            return {"start": type_, "time": timestamp}
        case At(sequence_number=number, seen=seen):
            return {"at": number, "seen": seen}
    number, sub = position.position
    if sub is None:
        return {"after": number, "seen": position.seen}
    return {"after": number, "seen": position.seen, "sub": sub}


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


def _sequence_number(value: Any) -> str:
    if not is_sequence_number(value):
        raise ValueError(f"a sequence number must be digits, not {str(value)[:40]!r}")
    return str(value)


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
