"""Parsing of positions in the text of an option."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kinesumer.errors import ConfigurationError, CorruptOffsetError
from kinesumer.model.positions import Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.spark.offsets.model import After, Offset, ShardPosition, StreamOffset
from kinesumer.spark.offsets.offset_json import from_json
from kinesumer.wire.fields import is_sequence_number

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN = 0.0
"""The time of a stream's creation or of a position, if a user's JSON omits it."""

_FORMS = "LATEST, TRIM_HORIZON, AT_TIMESTAMP 2026-11-20T12:00:00Z, or JSON of positions"


def parse_position(name: str, text: str) -> Start | Offset:
    """Return a position, or positions by stream. Raises ConfigurationError.

    An Offset from ``{stream: {shard: …}}`` has the user's names or ARNs of streams as
    its keys, and UNKNOWN times.
    """
    if text.lstrip().startswith("{"):
        return _parse_json(name, text)
    return parse_start(name, text)


def parse_start(name: str, text: str) -> Start:
    """Return one position for all shards. Raises ConfigurationError."""
    word, _, rest = text.strip().partition(" ")
    match word.upper(), rest.strip():
        case "LATEST", "":
            return Start.LATEST
        case "TRIM_HORIZON" | "EARLIEST", "":
            return Start.TRIM_HORIZON
        case "AT_TIMESTAMP", moment:
            return _at(name, moment)
    raise ConfigurationError(f"option {name}={text!r} must be {_FORMS}")


def _at(name: str, text: str) -> Start:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option {name}: {text!r} isn't a time; "
            "write AT_TIMESTAMP 2026-11-20T12:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"option {name}: {text!r} has no time zone; "
            f"write {text}Z for UTC, or an offset such as {text}+01:00"
        )
    try:
        return Start.at(moment)
    except ConfigurationError as error:
        raise ConfigurationError(f"option {name}: {text!r}: {error}") from error


def _parse_json(name: str, text: str) -> Start | Offset:
    value = _object(name, text)
    if not value:
        raise ConfigurationError(f"option {name}={text!r} must name one stream or more")
    folded = {key.lower(): item for key, item in value.items()}
    if "at_timestamp" in folded:
        return _as_databricks_writes_it(name, folded)
    if "streams" in value and "version" in value:
        try:
            return from_json(value)
        except CorruptOffsetError as error:
            raise ConfigurationError(f"option {name}: {error}") from error
    return {
        stream: StreamOffset(UNKNOWN, _shards(name, stream, shards))
        for stream, shards in value.items()
    }


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"option {name} isn't valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"option {name} must be a JSON object: {text}")
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object. Raise ValueError for a repeated key."""
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is repeated")
    return value


def _as_databricks_writes_it(name: str, value: Mapping[str, Any]) -> Start:
    unknown = sorted(value.keys() - {"at_timestamp", "format"})
    if unknown:
        raise ConfigurationError(
            f"option {name}: {', '.join(unknown)} beside at_timestamp has no meaning; "
            'there is only "format"'
        )
    moment, pattern = str(value["at_timestamp"]), value.get("format")
    if pattern is None:
        return _at(name, moment)
    directives = _JAVA_TIME.sub(lambda match: _DIRECTIVES[match[0][0]], str(pattern))
    try:
        parsed = datetime.strptime(moment, directives)
    except (ValueError, re.error) as error:  # the latter where a part comes twice
        raise ConfigurationError(
            f"option {name}: {moment!r} isn't of the format {pattern!r}; give the time "
            "zone as an offset such as +0100, or write 2026-11-20T12:00:00Z without "
            'a "format"'
        ) from error
    return _at(name, parsed.isoformat())


_DIRECTIVES = {
    "y": "%Y",
    "M": "%m",
    "d": "%d",
    "H": "%H",
    "m": "%M",
    "s": "%S",
    "S": "%f",
    "Z": "%z",
    "X": "%z",
}
_JAVA_TIME = re.compile(r"yyyy|MM|dd|HH|mm|ss|S+|Z+|X+")


def _shards(name: str, stream: str, shards: object) -> dict[str, ShardPosition]:
    if not isinstance(shards, dict) or not shards:
        raise ConfigurationError(
            f"option {name}: stream {stream!r} needs an object of shards, e.g. "
            '{"shardId-000000000000": "TRIM_HORIZON"}'
        )
    return {
        shard: _place(name, f"{stream}/{shard}", place)
        for shard, place in shards.items()
    }


def _place(name: str, shard: str, place: object) -> ShardPosition:
    if isinstance(place, str) and is_sequence_number(place):
        return After(Position(place), UNKNOWN)
    if isinstance(place, str) and place.upper() != "LATEST":
        return parse_start(f"{name}, {shard}", place)
    if isinstance(place, dict) and place.keys() == {"after", "seen"}:
        number, seen = place["after"], place["seen"]
        if isinstance(number, str) and is_sequence_number(number):
            return After(Position(number), _seen(f"{name}, {shard}", seen))
    raise ConfigurationError(
        f"option {name}: {shard} is at {place!r}, which is neither a sequence number "
        '(in quotes), {"after": SEQUENCE_NUMBER, "seen": TIME}, TRIM_HORIZON nor '
        "AT_TIMESTAMP with a time"
    )


def _seen(name: str, seen: object) -> float:
    """Return the time up to which nothing arrived after a position."""
    if isinstance(seen, int | float) and not isinstance(seen, bool):
        if 0 <= seen < YEAR_10000:
            return float(seen)
    elif isinstance(seen, str):
        start = _at(name, seen)
        assert start.timestamp is not None
        return start.timestamp
    raise ConfigurationError(
        f"option {name}: seen is {seen!r}, which is neither a time such as "
        "2026-11-20T12:00:00Z nor seconds since 1970"
    )
