"""What Spark's log holds of a query: a position in every shard, as JSON.

``{"streams": {ARN: {"created": SECONDS, "shards": {SHARD_ID: PLACE}}}, "version": 1}``
with one of these as a PLACE:

- ``{"after": SEQUENCE_NUMBER, "seen": SECONDS}``, and ``"sub"`` in an aggregate
- ``{"start": "TRIM_HORIZON"}``, or ``{"start": "AT_TIMESTAMP", "time": SECONDS}``
- ``{"end": true}``: the shard is closed and has been read to its end
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kinesumer.errors import CorruptOffsetError
from kinesumer.model import Position, Start

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
class End:
    """The shard is closed and has been read to its end."""


END = End()
BEGINNING = Start.TRIM_HORIZON
"""The place of a shard that an offset doesn't name yet: a child's."""

Place = After | Start | End
"""Where reading of one shard goes on. A Start is TRIM_HORIZON or AT_TIMESTAMP."""


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """The places of all known shards of a stream."""

    created_at: float
    """Tells a stream from one that was created anew under its name."""
    shards: Mapping[str, Place]


Offset = dict[str, StreamOffset]
"""Every stream by its ARN. Empty: before the query's first batch."""


def to_json(offset: Offset) -> dict[str, Any]:
    """Return an offset as Spark stores it, its keys sorted: equal offsets, equal text.

    The initial offset (no streams) is ``{}``.
    """
    if not offset:
        return {}
    streams = {
        arn: {
            "created": offset[arn].created_at,
            "shards": {
                shard_id: _place_to_json(place)
                for shard_id, place in sorted(offset[arn].shards.items())
            },
        }
        for arn in sorted(offset)
    }
    return {"streams": streams, "version": VERSION}


def from_json(value: Mapping[str, Any]) -> Offset:
    """Return the offset that Spark's log holds. Raises CorruptOffsetError."""
    if not value:
        return {}
    if value.get("version") != VERSION:
        raise _corrupt(value)
    try:
        return {
            arn: StreamOffset(
                float(stream["created"]),
                {
                    shard_id: _place_from_json(place)
                    for shard_id, place in stream["shards"].items()
                },
            )
            for arn, stream in value["streams"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _corrupt(value) from error


def _place_to_json(place: Place) -> dict[str, Any]:
    match place:
        case End():
            return {"end": True}
        case Start(type=type_, timestamp=None):
            return {"start": type_}
        case Start(type=type_, timestamp=timestamp):
            return {"start": type_, "time": timestamp}
    number, sub = place.position
    if sub is None:
        return {"after": number, "seen": place.seen}
    return {"after": number, "seen": place.seen, "sub": sub}


def _place_from_json(value: Mapping[str, Any]) -> Place:
    if value.get("end") is True:
        return END
    if "after" in value:
        number, sub = value["after"], value.get("sub")
        if not (isinstance(number, str) and number.isascii() and number.isdecimal()):
            raise ValueError(number)
        position = Position(number, None if sub is None else int(sub))
        return After(position, float(value["seen"]))
    if value["start"] == "AT_TIMESTAMP":
        return Start(type="AT_TIMESTAMP", timestamp=float(value["time"]))
    if value["start"] == "TRIM_HORIZON":
        return BEGINNING
    raise ValueError(value["start"])


def _corrupt(value: Mapping[str, Any]) -> CorruptOffsetError:
    text = json.dumps(value, default=str)
    return CorruptOffsetError(
        f"an offset in the query's checkpoint isn't kinesumer's: {text[:200]}; was the "
        "checkpoint made by another source, or by a newer version of kinesumer?"
    )
