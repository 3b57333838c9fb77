"""The ``streams`` option: names, ARNs, or JSON with regions and roles."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start, Stream
from kinesumer.spark.options.positions import parse_start, unique_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELDS = {
    "region": "region",
    "roleArn": "role_arn",
    "externalId": "external_id",
    "roleSessionName": "session_name",
}
"""The JSON names of the fields of a Stream."""
_KEYS = ("name", "arn", *_FIELDS, "startingPosition")


def streams_option(*streams: Stream | str) -> str:
    """Return the ``streams`` option for streams of several regions or accounts.

    >>> streams_option("orders", Stream("payments", region="eu-west-1"))
    '["orders", {"name": "payments", "region": "eu-west-1"}]'
    """
    value = [_to_json(stream) for stream in streams]
    text = json.dumps(value)
    parse_streams(text)
    return text


def _to_json(stream: Stream | str) -> object:
    if isinstance(stream, str):
        return stream
    if not isinstance(stream, Stream):
        raise ConfigurationError(
            f"{stream!r} is not a stream: give each name, ARN or Stream by itself"
        )
    if stream.min_read_interval_seconds != Stream("").min_read_interval_seconds:
        raise ConfigurationError(
            f"stream {stream.name}: min_read_interval_seconds is for the "
            "client, not for Spark; leave it out"
        )
    fields: dict[str, str] = {_kind(stream.name): stream.name}
    for key, attribute in _FIELDS.items():
        value = getattr(stream, attribute)
        if value is not None:
            fields[key] = value
    if stream.start is not None:
        fields["startingPosition"] = _start_text(stream.start)
    return fields


def _start_text(start: Start) -> str:
    if start.timestamp is None:
        return start.type
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(start.timestamp, UTC)
    return f"{start.type} {moment.isoformat()}"


def _kind(name: str) -> str:
    return "arn" if name.startswith("arn:") else "name"


def parse_streams(
    text: str,
    role_arn: str | None = None,
    external_id: str | None = None,
    session_name: str | None = None,
) -> tuple[Stream, ...]:
    """Return the streams, with the role where it applies.

    The role applies to ARNs of its account. It applies to names only if no ARN is of
    that account. Raises ConfigurationError.
    """
    if text.lstrip().startswith("["):
        streams = _from_json(text)
    else:
        streams = [Stream(_checked(name)) for name in text.split(",")]
    names = [stream.name for stream in streams]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"option streams names {name} twice")
    if role_arn is not None:
        return _with_role(streams, role_arn, external_id, session_name)
    for option, value in (
        ("roleExternalId", external_id),
        ("roleSessionName", session_name),
    ):
        if value is not None:
            raise ConfigurationError(f"option {option} needs the option roleArn")
    return tuple(streams)


def _with_role(
    streams: Sequence[Stream],
    role_arn: str,
    external_id: str | None,
    session_name: str | None,
) -> tuple[Stream, ...]:
    account = _role_account("roleArn", role_arn)
    of_account = {s.name for s in streams if _account(s.name) == account}
    chosen = of_account or {s.name for s in streams if _account(s.name) is None}
    if not any(s.name in chosen and s.role_arn is None for s in streams):
        raise ConfigurationError(
            f"option roleArn: {role_arn} is in account {account}, but no stream is; "
            'write the streams as JSON and give each its "roleArn"'
        )
    return tuple(
        replace(
            stream,
            role_arn=role_arn,
            external_id=external_id,
            session_name=session_name,
        )
        if stream.name in chosen and stream.role_arn is None
        else stream
        for stream in streams
    )


def _from_json(text: str) -> list[Stream]:
    try:
        items = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"option streams isn't valid JSON: {error}") from error
    if not items:
        raise ConfigurationError("option streams must name one stream or more")
    return [
        Stream(_checked(item)) if isinstance(item, str) else _from_object(item)
        for item in items
    ]


def _from_object(item: Any) -> Stream:
    if not isinstance(item, dict):
        raise ConfigurationError(
            f"option streams: {json.dumps(item)} is neither a name nor an object"
        )
    if ("name" in item) == ("arn" in item):
        raise ConfigurationError(
            f"option streams: an object with {', '.join(item) or 'nothing'} needs "
            'either "name" or "arn"'
        )
    for key, value in item.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"option streams: {key!r} isn't known; there are {', '.join(_KEYS)}"
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
            'but no "roleArn"'
        )
    region = _region(name)
    if region is not None and fields.get("region", region) != region:
        raise ConfigurationError(f"option streams: {name} isn't in {fields['region']}")
    start = item.get("startingPosition")
    if start is not None:
        return Stream(name, **fields, start=parse_start("streams", start))
    return Stream(name, **fields)


def _checked(text: str) -> str:
    name = text.strip()
    parts = name.split(":")
    if name.startswith("arn:"):
        if len(parts) == 6 and parts[2] == "kinesis" and parts[3] and parts[4]:
            if parts[5].startswith("stream/") and len(parts[5]) > len("stream/"):
                return name
        raise ConfigurationError(
            f"option streams: {name!r} isn't a stream's ARN, such as "
            "arn:aws:kinesis:REGION:ACCOUNT:stream/NAME"
        )
    if not name or not all(c.isascii() and (c.isalnum() or c in "_.-") for c in name):
        raise ConfigurationError(
            f"option streams: {name!r} is neither a stream's name nor its ARN"
        )
    return name


def _account(name: str) -> str | None:
    return name.split(":")[4] if name.startswith("arn:") else None


def _region(name: str) -> str | None:
    return name.split(":")[3] if name.startswith("arn:") else None


def _role_account(option: str, role_arn: str) -> str:
    parts = role_arn.split(":", 5)
    if len(parts) != 6 or parts[2] != "iam" or not parts[5].startswith("role/"):
        raise ConfigurationError(
            f"option {option}: {role_arn!r} isn't a role's ARN, such as "
            "arn:aws:iam::ACCOUNT:role/NAME"
        )
    return parts[4]
