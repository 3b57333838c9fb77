"""Convert requests and answers between JSON and CBOR, which Kinesis speaks, too.

The service itself handles JSON only.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec

from kinesumer.testing.kinesis.errors import invalid_request
from kinesumer.wire.cbor import Milliseconds, encode
from kinesumer.wire.decoder import compiled

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
