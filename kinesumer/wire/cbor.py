"""Encodes CBOR, in which Kinesis answers without Base64, and finds its decoder in C.

The format is RFC 8949, with AWS's own meaning of times: an integer with tag 1 is in
milliseconds since 1970, not in seconds. Without the compiled decoder, records are read
in JSON. That is faster then, because msgspec's decoder of JSON is compiled, too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Literal, Protocol, cast

from kinesumer.model.records import ColumnBuffers, Record

# The content type in which AWS's SDK for Java calls Kinesis.
CONTENT_TYPE = "application/x-amz-cbor-1.1"
Body = bytes | bytearray
Buffer = bytes | bytearray | memoryview


# The major types: the first three bits of an item.
_NATURAL, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_TIME_TAG = 1
_CONSTANTS = {False: 20, True: 21, None: 22}
_FLOAT = 27


def is_map(body: bytes | bytearray) -> bool:
    """Return whether a body begins as a CBOR map. JSON never does."""
    return bool(body) and body[0] >> 5 == _MAP


class Milliseconds(int):
    """A time, in milliseconds since 1970."""


def encode(value: object) -> bytes:
    """Return a value as CBOR.

    It may consist of dictionaries with texts as keys, lists, texts, bytes, numbers,
    Milliseconds, booleans and None.
    """
    if isinstance(value, str):
        text = value.encode()
        return _head(_TEXT, len(text)) + text
    if isinstance(value, bytes):
        return _head(_BYTES, len(value)) + value
    if isinstance(value, dict):
        fields = [encode(key) + encode(field) for key, field in value.items()]
        return _head(_MAP, len(fields)) + b"".join(fields)
    if isinstance(value, list):
        return _head(_ARRAY, len(value)) + b"".join(map(encode, value))
    if isinstance(value, float):
        return bytes((_SIMPLE << 5 | _FLOAT,)) + struct.pack(">d", value)
    if value is None or isinstance(value, bool):
        return _head(_SIMPLE, _CONSTANTS[value])
    assert isinstance(value, int)
    tag = _head(_TAG, _TIME_TAG) if isinstance(value, Milliseconds) else b""
    number = _head(_NATURAL, value) if value >= 0 else _head(_NEGATIVE, -1 - value)
    return tag + number


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    low = next(low for low in (24, 25, 26, 27) if number < 1 << (8 << low - 24))
    return bytes((major << 5 | low,)) + number.to_bytes(1 << low - 24)


class Compiled(Protocol):
    """The functions of ``_native.c``. Each raises ValueError for an unusual body."""

    def decode(self, body: Body, /) -> object:
        """Return a body as an object. A time is a float, in seconds."""
        ...

    def new_body(self, size: int, /) -> bytearray:
        """Return a bytearray whose bytes are not set."""
        ...

    def read_page(
        self, body: Body, prefix: bytes, /
    ) -> tuple[bytes, bool, dict[str, object]]:
        """Return an index of a page's records, and the page's other fields.

        Also return whether the data of at least one record begins with the prefix.
        """
        ...

    def read_json(
        self, body: Buffer, prefix: bytes, /
    ) -> tuple[bytes, bytes, bool, bytes]:
        """Return another body, an index, and the page in JSON without its records.

        Before the last one, return whether the data of a record begins with the prefix.
        """
        ...

    def data_bytes(self, body: Body, index: bytes, first: int, stop: int, /) -> int:
        """Return the size of the data of some records."""
        ...

    def open_aggregates(
        self,
        body: Body,
        index: bytes,
        first: int,
        stop: int,
        prefix: bytes,
        most: int,
        most_bytes: int,
        is_intact: Callable[[int, int], bool],
        /,
    ) -> tuple[bytes, bytes, int, set[str]]:
        """Return records with user records in place of aggregates.

        They are another body and its index, until the end that is returned. Also return
        the explicit hash keys of the aggregates.
        """
        ...

    def copy(
        self, body: Body, index: bytes, first: int, stop: int, has_data: bool, /
    ) -> tuple[bytes, bytes]:
        """Return a copy of some records, as a body and its index."""
        ...

    def iterate(
        self,
        body: Body,
        index: bytes,
        first: int,
        stop: int,
        type_: Callable[..., Record],
        source: object,
        /,
    ) -> Iterator[Record]:
        """Return an iterator that makes the objects of some records."""
        ...

    def columns(
        self, body: Body, index: bytes, first: int, stop: int, /
    ) -> tuple[ColumnBuffers, ...]:
        """Return the columns of some records, as buffers of Arrow."""
        ...


def find_compiled() -> Compiled | None:
    """Return the compiled decoder, or None if it was built without a C compiler."""
    try:
        return cast("Compiled", import_module("kinesumer.wire._native"))
    except ModuleNotFoundError:
        return None


compiled: Compiled | None = find_compiled()


def new_body(size: int) -> bytearray:
    """Return a bytearray of a size, for a body that is received.

    With the compiled decoder its bytes are not set first, which takes as long as to
    receive a fifth of them.
    """
    return bytearray(size) if compiled is None else compiled.new_body(size)


def decoder() -> Literal["compiled", "json"]:
    """Return which decoder is in use: that of CBOR in C, or that of JSON."""
    return "json" if compiled is None else "compiled"
