"""An offset as JSON, which Spark stores and shows.

``{"streams": {ARN: {"created": SECONDS, "shards": {SHARD_ID: PLACE}}}, "version": 2}``
and where the stream is new to the query ``anchored`` (SECONDS) and ``from`` (places as
in ``shards``) beside ``created``, with one of these as a PLACE:

- ``{"after": SEQUENCE_NUMBER, "seen": SECONDS}``, and ``"sub"`` in an aggregate
- ``{"at": SEQUENCE_NUMBER, "seen": SECONDS}``, in ``from`` only
- ``{"start": "TRIM_HORIZON"}``, or ``{"start": "AT_TIMESTAMP", "time": SECONDS}``
- ``{"end": true}``, and maybe ``"seen"``: the shard is closed and has been read

Where there are many shards, ``shards`` and ``from`` are ``{SHARD_ID: [PLACE, …]}``: the
places of that shard and of those that follow by number. See ``position_lists``.
Version 1 had no lists. ``seen`` is in whole milliseconds, rounded down.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.spark.offsets.model import (
    BEGINNING,
    END,
    After,
    At,
    End,
    StreamOffset,
)
from kinesumer.spark.offsets.position_lists import pack, unpack
from kinesumer.wire.fields import is_sequence_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.spark.offsets.model import Offset, ShardPosition

VERSION = 2
MAX_IN_FULL = 16
"""Up to so many positions of a stream are written in full, for readability."""


def to_json(offset: Offset) -> dict[str, Any]:
    """Return an offset as Spark stores it, its keys sorted: equal offsets, equal text.

    The initial offset (no streams) is ``{}``.
    """
    if not offset:
        return {}
    streams = {arn: _stream_to_json(offset[arn]) for arn in sorted(offset)}
    return {"streams": streams, "version": VERSION}


def from_json(value: Any) -> Offset:
    """Return the offset that Spark's log holds. Raises CorruptOffsetError."""
    if value == {}:
        return {}
    try:
        version = value["version"]
        if type(version) is not int or version not in (1, VERSION):
            raise ValueError(f"the version is {version!r:.20}")
        lists = version > 1
        return {
            arn: StreamOffset(
                _seconds(stream["created"]),
                _places_from_json(stream["shards"], lists=lists),
                _seconds(stream.get("anchored", 0.0)),
                _places_from_json(stream.get("from", {}), lists=lists),
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
        value["from"] = _places_to_json(stream.origin)
    value["shards"] = _places_to_json(stream.shards)
    return {key: value[key] for key in sorted(value)}


def _places_to_json(places: Mapping[str, ShardPosition]) -> dict[str, Any]:
    whole = {shard_id: _whole_millis(places[shard_id]) for shard_id in sorted(places)}
    if len(whole) > MAX_IN_FULL:
        return pack(whole, _place_to_json)
    return {shard_id: _place_to_json(place) for shard_id, place in whole.items()}


def _places_from_json(
    value: Mapping[str, Any], *, lists: bool
) -> dict[str, ShardPosition]:
    if not isinstance(value, dict):
        raise TypeError(f"shards are {value!r:.40}")
    packed = {key: item for key, item in value.items() if isinstance(item, list)}
    if packed and not lists:
        raise TypeError("a list of places in version 1")
    places = unpack(packed, _place_from_json)
    for shard_id in value.keys() - packed.keys():
        if shard_id in places:
            raise ValueError(f"{shard_id:.40} has two places")
        places[shard_id] = _place_from_json(value[shard_id])
    return {shard_id: _whole_millis(place) for shard_id, place in places.items()}


def _place_to_json(place: ShardPosition) -> dict[str, Any]:
    match place:
        case End(seen=seen):
            return {"end": True, "seen": seen} if seen else {"end": True}
        case Start(type=type_, timestamp=None):
            return {"start": type_}
        case Start(type=type_, timestamp=timestamp):
            return {"start": type_, "time": timestamp}
        case At(sequence_number=number, seen=seen):
            return {"at": number, "seen": seen}
    number, sub = place.position
    if sub is None:
        return {"after": number, "seen": place.seen}
    return {"after": number, "seen": place.seen, "sub": sub}


def _place_from_json(value: Any) -> ShardPosition:
    if not isinstance(value, dict):
        raise TypeError(f"a place is {value!r:.40}")
    if value.get("end") is True:
        return End(_seconds(value["seen"])) if "seen" in value else END
    if "at" in value:
        return At(_sequence_number(value["at"]), _seconds(value["seen"]))
    if "after" in value:
        number, sub = _sequence_number(value["after"]), value.get("sub")
        if sub is not None and (type(sub) is not int or not 0 <= sub < WHOLE_RECORD):
            raise ValueError("a sub-sequence number out of range")
        return After(Position(number, sub), _seconds(value["seen"]))
    if value["start"] == "AT_TIMESTAMP":
        return Start(type="AT_TIMESTAMP", timestamp=_seconds(value["time"]))
    if value["start"] == "TRIM_HORIZON":
        return BEGINNING
    raise ValueError("a start that is neither TRIM_HORIZON nor AT_TIMESTAMP")


def _whole_millis(place: ShardPosition) -> ShardPosition:
    """Round down up to when a place was seen: an earlier time is true as well."""
    match place:
        case After(position=position, seen=seen):
            return After(position, _floor(seen))
        case At(sequence_number=number, seen=seen):
            return At(number, _floor(seen))
        case End(seen=seen):
            return End(_floor(seen))
    return place


def _floor(seconds: float) -> float:
    millis = round(seconds * 1000)
    return (millis if millis / 1000 <= seconds else millis - 1) / 1000


def _sequence_number(value: Any) -> str:
    if not is_sequence_number(value):
        raise ValueError(f"a sequence number is {str(value)[:40]!r}")
    return str(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a time is {value!r:.40}")
    if not 0 <= value < YEAR_10000:
        raise ValueError("a time is out of range")
    return float(value)


def _corrupt(value: object, reason: str) -> CorruptOffsetError:
    text = json.dumps(value, default=str)
    return CorruptOffsetError(
        f"an offset in the query's checkpoint isn't kinesumer's ({reason[:200]}): "
        f"{text[:200]}; was the checkpoint made by another source, or by a newer "
        "version of kinesumer?"
    )
