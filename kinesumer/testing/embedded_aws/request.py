"""Parse requests to AWS, and create the error of a denied request.

Kinesis speaks CBOR, too. The service itself handles JSON only.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from kinesumer.testing.kinesis.errors import AwsError, invalid_request
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.decoder import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping


_CREDENTIAL = re.compile(r"Credential=([^/,\s]+)/[^/,]*/([^/,]*)/")
_SERVICES = {"Kinesis_20131202": "kinesis", "DynamoDB_20120810": "dynamodb"}


class Request(NamedTuple):
    """An AWS request whose caller isn't identified yet."""

    service: str
    operation: str
    body: bytes
    form: Mapping[str, str]  # the fields of an STS request
    access_key: str
    region: str
    session_token: str | None
    user_agent: str
    content_type: str


def parse_request(headers: Mapping[str, str], body: bytes) -> Request:
    """Parse a request. A request without the target header is an STS request."""
    prefix, _, operation = headers.get("X-Amz-Target", "").partition(".")
    service = _SERVICES.get(prefix, "sts")
    form = dict(parse_qsl(body.decode())) if service == "sts" else {}
    key, region = "", ""
    if match := _CREDENTIAL.search(headers.get("Authorization", "")):
        key, region = match.groups()
    return Request(
        service,
        form.get("Action", "") if service == "sts" else operation,
        body,
        form,
        key,
        region,
        headers.get("X-Amz-Security-Token"),
        headers.get("User-Agent", ""),
        headers.get("Content-Type", ""),
    )


def access_denied(caller: str, action: str, resource: str, why: str = "") -> AwsError:
    """Return the error for a denied action, with the text that AWS uses."""
    reason = why or f"no identity-based policy allows the {action} action"
    return AwsError(
        "AccessDeniedException",
        f"User: {caller} is not authorized to perform: {action} "
        f"on resource: {resource} because {reason}",
    )


_DATA = "Data"


def to_json(body: bytes) -> bytes:
    """Return a request in JSON. Raise AwsError if it isn't CBOR."""
    if compiled is None:
        raise invalid_request("CBOR needs the compiled decoder: use JSON.")
    try:
        return msgspec.json.encode(compiled.decode(body))
    except ValueError as error:
        raise invalid_request(f"The request is not CBOR: {error}.") from None


def from_json(body: bytes) -> bytes:
    """Return an answer in CBOR."""
    return encode(_typed("", msgspec.json.decode(body)))


def _typed(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _typed(key, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_typed(name, inner) for inner in value]
    if name == _DATA:
        return b64decode(value)
    if name.endswith("Timestamp"):
        return Milliseconds(round(value * 1000))
    return value
