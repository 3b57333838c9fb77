"""Put the W3C trace context of a record's creation into the record.

Kinesis has no headers, so the context is a part of the data. For example, the option
``"headers.traceparent"`` turns ``{"total": 5}`` into ``{"total": 5, "headers":
{"traceparent": "00-…"}}``, where ``run(traceparent="headers.traceparent")`` finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from kinesumer.errors import ConfigurationError

# Returns data that contains a traceparent.
AddTraceparent = Callable[[bytes, str], bytes]
Fields = dict[str, msgspec.Raw]

_decode = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode
_decode_text = msgspec.json.Decoder(str).decode


class Traced(NamedTuple):
    """A record's data, and the traceparent in it; empty if it has none."""

    data: bytes
    traceparent: str


class ContextWriter:
    """Puts contexts into data. ``create`` makes one; it is empty without a trace."""

    def __init__(self, option: str | AddTraceparent) -> None:
        self._option = option

    def write(self, data: Any, create: Callable[[], str]) -> Traced:
        """Return the data with a context.

        A context that a user has put at the path is kept. Data that is not JSON with
        objects along the path stays as it is. Raise errors of the user's function, and
        ConfigurationError if it doesn't return bytes.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            return Traced(data, "")  # the producer refuses it
        data = bytes(data)
        if callable(self._option):
            return self._write_by_function(self._option, data, create)
        *above, name = self._option.split(".")
        try:
            levels = [_decode(data)]
            for key in above:
                levels.append(_decode(levels[-1].get(key, b"{}")))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return Traced(data, "")
        if name in levels[-1]:
            return Traced(data, _text(levels[-1][name]))
        if not (traceparent := create()):
            return Traced(data, "")
        inner = msgspec.Raw(_encode(traceparent))
        for fields, key in zip(reversed(levels), [name, *reversed(above)], strict=True):
            inner = msgspec.Raw(_encode({**fields, key: inner}))
        return Traced(bytes(inner), traceparent)

    def _write_by_function(
        self, add: AddTraceparent, data: bytes, create: Callable[[], str]
    ) -> Traced:
        if not (traceparent := create()):
            return Traced(data, "")
        changed: Any = add(data, traceparent)
        if not isinstance(changed, bytes):
            raise ConfigurationError(
                f"traceparent={add!r} returned {type(changed).__name__}: make it "
                "return the record's data as bytes"
            )
        return Traced(changed, traceparent)


def _text(value: msgspec.Raw) -> str:
    """Return the text in JSON, or an empty text for another value."""
    try:
        return _decode_text(value)
    except (msgspec.DecodeError, UnicodeError):
        return ""


def read_writer(option: object) -> ContextWriter | None:
    """Return what puts contexts into data. Raise ConfigurationError.

    ``option`` is a path into JSON, a function of data and a traceparent, or None.
    """
    if option is None:
        return None
    is_path = isinstance(option, str) and all(option.split("."))
    if is_path or (callable(option) and not isinstance(option, str)):
        return ContextWriter(option)  # type: ignore[arg-type]
    raise ConfigurationError(
        f"traceparent={option!r} must be a path into JSON, such as "
        "'headers.traceparent', or a function of data and a traceparent"
    )
