"""What Spark's log holds of a query: a position in every shard, as JSON.

``{"streams": {ARN: {"created": SECONDS, "shards": {SHARD_ID: PLACE}}}, "version": 1}``
and where the stream is new to the query ``anchored`` (SECONDS) and ``from`` (places as
in ``shards``) beside ``created``, with one of these as a PLACE:

- ``{"after": SEQUENCE_NUMBER, "seen": SECONDS}``, and ``"sub"`` in an aggregate
- ``{"at": SEQUENCE_NUMBER, "seen": SECONDS}``, in ``from`` only
- ``{"start": "TRIM_HORIZON"}``, or ``{"start": "AT_TIMESTAMP", "time": SECONDS}``
- ``{"end": true}``, and maybe ``"seen"``: the shard is closed and has been read
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesumer.errors import CorruptOffsetError
from kinesumer.model import WHOLE_RECORD, YEAR_10000, Position, Start
from kinesumer.wire.attributes import is_sequence_number

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1


@dataclass(frozen=True, slots=True)
class After:
    """Just after a record."""

    position: Position
    seen: float
    """A time (seconds since 1970, by Kinesis's clock) up to which every record of the
    shard is known to lie at or before the position: tells whether retention may have
    passed unread records."""


@dataclass(frozen=True, slots=True)
class At:
    """Just before a record: where a batch begins that a Start began.

    The record was there when the batch was planned, so it must be there when the batch
    is computed: otherwise retention has taken it.
    """

    sequence_number: str
    seen: float
    """When the record arrived."""


@dataclass(frozen=True, slots=True)
class End:
    """The shard is closed and has been read to its end."""

    seen: float = field(default=0.0, compare=False)
    """A time before which its children hold nothing. 0: unknown."""


END = End()
BEGINNING = Start.TRIM_HORIZON
"""The place of a shard that an offset doesn't name yet: a child's."""

Place = After | At | Start | End
"""Where reading of one shard goes on. A Start is TRIM_HORIZON or AT_TIMESTAMP."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The places of all known shards of a stream."""

    created_at: float
    """Tells a stream from one that was created anew under its name."""
    shards: Mapping[str, Place]
    anchored_at: float = 0.0
    """When the query first saw the stream: how old its Start places are."""
    origin: Mapping[str, Place] = field(default_factory=dict)
    """Where the batch that ends here begins, in shards where the one before doesn't say
    it: all of a new stream's, and those whose old position can't be asked for."""


Offset = dict[str, StreamOffset]
"""Every stream by its ARN. Empty: before the query's first batch."""


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
        if type(value["version"]) is not int or value["version"] != VERSION:
            raise ValueError(value["version"])
        return {
            arn: StreamOffset(
                _seconds(stream["created"]),
                _places_from_json(stream["shards"]),
                _seconds(stream.get("anchored", 0.0)),
                _places_from_json(stream.get("from", {})),
            )
            for arn, stream in value["streams"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(value) from error


def _stream_to_json(stream: StreamOffset) -> dict[str, Any]:
    value: dict[str, Any] = {"created": stream.created_at}
    if stream.anchored_at:
        value["anchored"] = stream.anchored_at
    if stream.origin:
        value["from"] = _places_to_json(stream.origin)
    value["shards"] = _places_to_json(stream.shards)
    return {key: value[key] for key in sorted(value)}


def _places_to_json(places: Mapping[str, Place]) -> dict[str, Any]:
    return {shard_id: _place_to_json(places[shard_id]) for shard_id in sorted(places)}


def _places_from_json(value: Mapping[str, Any]) -> dict[str, Place]:
    return {shard_id: _place_from_json(place) for shard_id, place in value.items()}


def _place_to_json(place: Place) -> dict[str, Any]:
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


def _place_from_json(value: Mapping[str, Any]) -> Place:
    if value.get("end") is True:
        return End(_seconds(value["seen"])) if "seen" in value else END
    if "at" in value:
        return At(_sequence_number(value["at"]), _seconds(value["seen"]))
    if "after" in value:
        number, sub = _sequence_number(value["after"]), value.get("sub")
        if sub is not None and (type(sub) is not int or not 0 <= sub < WHOLE_RECORD):
            raise ValueError(sub)
        return After(Position(number, sub), _seconds(value["seen"]))
    if value["start"] == "AT_TIMESTAMP":
        return Start(type="AT_TIMESTAMP", timestamp=_seconds(value["time"]))
    if value["start"] == "TRIM_HORIZON":
        return BEGINNING
    raise ValueError(value["start"])


def _sequence_number(value: Any) -> str:
    if not is_sequence_number(value):
        raise ValueError(value)
    return str(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    if not 0 <= value < YEAR_10000:
        raise ValueError(value)
    return float(value)


def _corrupt(value: object) -> CorruptOffsetError:
    text = json.dumps(value, default=str)
    return CorruptOffsetError(
        f"an offset in the query's checkpoint isn't kinesumer's: {text[:200]}; was the "
        "checkpoint made by another source, or by a newer version of kinesumer?"
    )
