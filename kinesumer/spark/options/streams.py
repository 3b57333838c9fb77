"""Parses the options that contain streams or positions.

The ``streams`` option contains names, ARNs, or JSON with regions and roles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kinesumer.errors import ConfigurationError, CorruptOffsetError
from kinesumer.model.positions import (
    After,
    Offset,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import YEAR_10000, Start, Stream, as_start, check_consumer
from kinesumer.model.table_streams import is_table_stream, parse_table_stream
from kinesumer.model.times import parse_time
from kinesumer.wire.fields import is_sequence_number
from kinesumer.wire.query_offsets import from_json

# Stands for the time of a stream's creation, or of a position, if the user's JSON lacks
# the time.
UNKNOWN = 0.0

_FORMS = (
    "LATEST, TRIM_HORIZON, a time such as 2026-11-20T12:00:00Z, how long ago, such as "
    "2h, or JSON of positions"
)
# The names that the fields of a Stream have in JSON.
_FIELDS = {
    "region": "region",
    "roleArn": "role_arn",
    "externalId": "external_id",
    "roleSessionName": "session_name",
    "fanOut": "fan_out",
}
_KEYS = ("name", "arn", *_FIELDS, "startingPosition")
_ARN = re.compile(r"arn:[^:]*:kinesis:[^:]+:[^:]+:stream/[^:]+", re.DOTALL)
_ROLE_ARN = re.compile(r"[^:]*:[^:]*:iam:[^:]*:([^:]*):role/.*", re.DOTALL)
_DIRECTIVES = dict(zip("yMdHmsSZX", "%Y %m %d %H %M %S %f %z %z".split(), strict=True))
_JAVA_TIME = re.compile(r"yyyy|MM|dd|HH|mm|ss|S+|Z+|X+")


# --- positions -----------------------------------------------------------------------


def parse_position(name: str, text: str) -> Start | Offset:
    """Return one position for all shards, or an Offset with a position for each shard.

    The text may be JSON: an offset of a query, Databricks' ``{"at_timestamp": TIME}``,
    or ``{STREAM: {SHARD_ID: POSITION}}``. In the last case, the keys of the Offset are
    the streams as the user wrote them, by name or ARN, and times may be UNKNOWN. Raises
    ConfigurationError.
    """
    if not text.lstrip().startswith("{"):
        return parse_start(name, text)
    value = _from_json(name, text)
    if not value:
        raise ConfigurationError(f"option {name}={text!r} must name one stream or more")
    folded = {key.lower(): item for key, item in value.items()}
    if "at_timestamp" in folded:
        return _parse_databricks_start(name, folded)
    if "streams" in value and "version" in value:
        try:
            return from_json(value)
        except CorruptOffsetError as error:
            raise ConfigurationError(f"option {name}: {error}; correct it") from error
    return {
        stream: StreamOffset(UNKNOWN, _shards(name, stream, shards))
        for stream, shards in value.items()
    }


def parse_start(name: str, text: str) -> Start:
    """Return a position that applies to all shards. Raises ConfigurationError."""
    word, _, rest = text.strip().partition(" ")
    match word.upper(), rest.strip():
        case "EARLIEST", "":
            return Start.TRIM_HORIZON
        case "AT_TIMESTAMP", time:
            return _start_at(name, time)
        case (("LATEST" | "TRIM_HORIZON"), ""):
            return Start.parse(word)
        case _, "" if word[:1].isdigit():
            return _start_at(name, word)
    raise ConfigurationError(f"option {name}={text!r} must be {_FORMS}")


def _start_at(name: str, text: str) -> Start:
    time = parse_time(f"option {name}:", text, datetime.now(UTC))
    try:
        return Start.at(time)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"option {name}: {text!r}: {error}; correct it"
        ) from error


def _from_json(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_require_unique_keys)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"option {name} isn't valid JSON: {error}; correct it"
        ) from error


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} is repeated")
    return value


def _parse_databricks_start(name: str, value: Mapping[str, Any]) -> Start:
    unknown = sorted(value.keys() - {"at_timestamp", "format"})
    if unknown:
        raise ConfigurationError(
            f"option {name}: {', '.join(unknown)} beside at_timestamp has no meaning; "
            'give "format" or nothing'
        )
    time, pattern = str(value["at_timestamp"]), value.get("format")
    if pattern is None:
        return _start_at(name, time)
    directives = _JAVA_TIME.sub(lambda match: _DIRECTIVES[match[0][0]], str(pattern))
    try:
        parsed = datetime.strptime(time, directives)
    except (ValueError, re.error) as error:  # re.error if the format has a part twice
        raise ConfigurationError(
            f"option {name}: {time!r} isn't of the format {pattern!r}; give the time "
            "zone as an offset such as +0100, or write 2026-11-20T12:00:00Z without "
            'a "format"'
        ) from error
    return _start_at(name, parsed.isoformat())


def _shards(name: str, stream: str, shards: object) -> dict[str, ShardPosition]:
    if not isinstance(shards, dict) or not shards:
        raise ConfigurationError(
            f"option {name}: stream {stream!r} must have an object of shards, e.g. "
            '{"shardId-000000000000": "TRIM_HORIZON"}'
        )
    return {
        shard: _shard_position(name, f"{stream}/{shard}", position)
        for shard, position in shards.items()
    }


def _shard_position(name: str, shard: str, position: object) -> ShardPosition:
    match position:
        case str() if is_sequence_number(position):
            return After(Position(position), UNKNOWN)
        case str() if position.upper() != "LATEST":
            return parse_start(f"{name}, {shard}", position)
        case {"after": str(number), "seen": seen, **rest} if not rest:
            if is_sequence_number(number):
                return After(Position(number), _seen(f"{name}, {shard}", seen))
    raise ConfigurationError(
        f"option {name}: {shard} is at {position!r}; give a sequence number (in "
        'quotes), {"after": SEQUENCE_NUMBER, "seen": TIME}, TRIM_HORIZON, or '
        "AT_TIMESTAMP with a time"
    )


def _seen(name: str, seen: object) -> float:
    """Parse "seen", a time until which no record after the position arrived."""
    if isinstance(seen, str):
        return _start_at(name, seen).timestamp or 0.0
    if isinstance(seen, int | float) and not isinstance(seen, bool):
        if 0 <= seen < YEAR_10000:
            return float(seen)
    raise ConfigurationError(
        f"option {name}: seen is {seen!r}; give a time such as 2026-11-20T12:00:00Z, "
        "or seconds since 1970"
    )


# --- streams -------------------------------------------------------------------------


def streams_option(*streams: Stream | str) -> str:
    """Return the ``streams`` option for streams of several regions or accounts.

    >>> streams_option("orders", Stream("payments", region="eu-west-1"))
    '["orders", {"name": "payments", "region": "eu-west-1"}]'
    """
    text = json.dumps([_to_json(stream) for stream in streams])
    parse_streams(text)
    return text


def _to_json(stream: Stream | str) -> object:
    if isinstance(stream, str):
        return stream
    if not isinstance(stream, Stream):
        raise ConfigurationError(
            f"{stream!r} is not a stream: give each name, ARN or Stream by itself"
        )
    default = Stream(stream.name).min_read_interval_seconds
    if stream.min_read_interval_seconds != default:
        raise ConfigurationError(
            f"stream {stream.name}: min_read_interval_seconds is for the "
            "client, not for Spark; leave it out"
        )
    if stream.fan_out_fallback:
        raise ConfigurationError(
            f"stream {stream.name}: fan_out_fallback is for the client; Spark "
            "polls small batches anyway: leave it out"
        )
    values = {key: getattr(stream, name) for key, name in _FIELDS.items()}
    if stream.start is not None:
        start = as_start(stream.start)
        values["startingPosition"] = start.type
        if start.timestamp is not None:
            time = datetime.fromtimestamp(start.timestamp, UTC)
            values["startingPosition"] += f" {time.isoformat()}"
    fields = {key: value for key, value in values.items() if value is not None}
    return {_kind(stream.name): stream.name, **fields}


def parse_streams(
    text: str,
    role_arn: str | None = None,
    external_id: str | None = None,
    session_name: str | None = None,
) -> tuple[Stream, ...]:
    """Return the streams. Add the role to those that it applies to.

    The role applies to streams that are given by an ARN of the role's account. It
    applies to streams that are given by name only if there is no such ARN. Raises
    ConfigurationError.
    """
    items = text.split(",")
    if text.lstrip().startswith("["):
        items = _from_json("streams", text)
        if not items:
            raise ConfigurationError("option streams must name one stream or more")
    streams = [
        Stream(_checked(item)) if isinstance(item, str) else _from_object(item)
        for item in items
    ]
    places = [(stream.name, stream.region) for stream in streams]
    for place in places:
        if places.count(place) > 1:
            raise ConfigurationError(
                f"option streams names {place[0]} twice: name it once"
            )
    role: dict[str, Any] = {"external_id": external_id, "session_name": session_name}
    if role_arn is not None:
        chosen = _names_for_role(streams, role_arn)
        return tuple(
            replace(s, role_arn=role_arn, **role) if s.name in chosen else s
            for s in streams
        )
    if external_id is not None or session_name is not None:
        option = "roleSessionName" if external_id is None else "roleExternalId"
        raise ConfigurationError(f"option {option} needs the option roleArn: set both")
    return tuple(streams)


def with_consumer(streams: Sequence[Stream], fan_out: str | None) -> tuple[Stream, ...]:
    """Add the option fanOut to the streams that have no stream consumer of their own.

    It doesn't apply to the streams of tables. Raises ConfigurationError if the consumer
    belongs to another stream.
    """
    given = tuple(
        s if is_table_stream(s.name) else replace(s, fan_out=s.fan_out or fan_out)
        for s in streams
    )
    for stream in given:
        if stream.fan_out is None:
            continue
        try:
            check_consumer(stream.fan_out, stream.name)
        except ConfigurationError as error:
            raise ConfigurationError(
                f"option fanOut: {error}; give a name, which applies to all streams"
            ) from error
    return given


def _names_for_role(streams: Sequence[Stream], role_arn: str) -> set[str]:
    """Return the names of the streams to which the option roleArn applies."""
    account = _role_account("roleArn", role_arn)
    of_account = [s for s in streams if _account(s.name) == account]
    candidates = of_account or [s for s in streams if _account(s.name) is None]
    names = {stream.name for stream in candidates if stream.role_arn is None}
    if not names:
        raise ConfigurationError(
            f"option roleArn: {role_arn} is in account {account}, but no stream is; "
            'write the streams as JSON and give each its "roleArn"'
        )
    return names


def _from_object(item: Any) -> Stream:
    if not isinstance(item, dict):
        raise ConfigurationError(
            f"option streams: {json.dumps(item)} must be a name or an object"
        )
    if ("name" in item) == ("arn" in item):
        raise ConfigurationError(
            f"option streams: an object with {', '.join(item) or 'nothing'} must "
            'have either "name" or "arn"'
        )
    for key, value in item.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"option streams: {key!r} isn't known; use {', '.join(_KEYS)}"
            )
        if not isinstance(value, str) or not value.strip():
            raise ConfigurationError(f"option streams: {key!r} must be text")
    key = "arn" if "arn" in item else "name"
    name = _checked(item[key])
    if key != _kind(name):
        raise ConfigurationError(
            f'option streams: {name!r} must be given as "{_kind(name)}", not as "{key}"'
        )
    fields = {_FIELDS[key]: item[key].strip() for key in _FIELDS if key in item}
    if "role_arn" in fields:
        _role_account("streams", fields["role_arn"])
    elif {"external_id", "session_name"} & fields.keys():
        raise ConfigurationError(
            f'option streams: {name} has an "externalId" or a "roleSessionName", '
            'but no "roleArn"; add it'
        )
    region = name.split(":")[3] if key == "arn" else fields.get("region")
    if fields.get("region", region) != region:
        raise ConfigurationError(
            f"option streams: {name} isn't in {fields['region']}; correct one of them"
        )
    start = item.get("startingPosition")
    return Stream(name, **fields, start=start and parse_start("streams", start))


def _checked(text: str) -> str:
    name = text.strip()
    if is_table_stream(name):
        try:
            parse_table_stream(name)
        except ConfigurationError as error:
            raise ConfigurationError(f"option streams: {error}; correct it") from error
    elif name.startswith("arn:"):
        if not _ARN.fullmatch(name):
            raise ConfigurationError(
                f"option streams: {name!r} must be a stream's ARN, such as "
                "arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"
            )
    elif not re.fullmatch(r"[\w.-]+", name, re.ASCII):
        raise ConfigurationError(
            f"option streams: {name!r} must be a stream's name or its ARN"
        )
    return name


def _kind(name: str) -> str:
    return "arn" if name.startswith("arn:") else "name"


def _account(name: str) -> str | None:
    return name.split(":")[4] if name.startswith("arn:") else None


def _role_account(option: str, role_arn: str) -> str:
    match = _ROLE_ARN.fullmatch(role_arn)
    if match is None:
        raise ConfigurationError(
            f"option {option}: {role_arn!r} must be a role's ARN, such as "
            "arn:aws:iam::ACCOUNT:role/NAME"
        )
    return match[1]
