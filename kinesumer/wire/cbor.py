"""Encode and decode CBOR, in which Kinesis answers without Base64.

The format is RFC 8949, with AWS's own meaning of times: an integer with tag 1 is in
milliseconds since 1970, not in seconds.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Body = bytes | bytearray

# The content type in which AWS's SDK for Java calls Kinesis.
CONTENT_TYPE = "application/x-amz-cbor-1.1"

# The major types: the first three bits of an item.
NATURAL, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE = range(8)
_INDEFINITE, _BREAK = 31, 0xFF
_TIME_TAG = 1
_CONSTANTS = {20: False, 21: True, 22: None}
_FLOATS = {25: struct.Struct(">e"), 26: struct.Struct(">f"), 27: struct.Struct(">d")}
# An answer of Kinesis has half as many levels.
MAX_DEPTH = 12
# A page has up to 10,000 records. The items of each are a map, four names, four values
# and a tag. Others would only take time, up to 2 s for each MiB.
MAX_ITEMS = 250_000


class CborError(ValueError):
    """The bytes are not complete CBOR, or not of a kind that Kinesis sends."""


def is_map(body: Body) -> bool:
    """Return whether a body begins as a CBOR map. JSON never does."""
    return bool(body) and body[0] >> 5 == MAP


class Milliseconds(int):
    """A time, in milliseconds since 1970."""


def encode(value: object) -> bytes:
    """Return a value as CBOR.

    It may consist of dictionaries with texts as keys, lists, texts, bytes, numbers,
    Milliseconds, booleans and None.
    """
    if isinstance(value, str):
        text = value.encode()
        return _head(TEXT, len(text)) + text
    if isinstance(value, bytes):
        return _head(BYTES, len(value)) + value
    if isinstance(value, dict):
        fields = [encode(key) + encode(field) for key, field in value.items()]
        return _head(MAP, len(fields)) + b"".join(fields)
    if isinstance(value, list):
        return _head(ARRAY, len(value)) + b"".join(map(encode, value))
    if isinstance(value, float):
        return bytes((SIMPLE << 5 | 27,)) + _FLOATS[27].pack(value)
    if value is None or isinstance(value, bool):
        [low] = [low for low, constant in _CONSTANTS.items() if constant is value]
        return _head(SIMPLE, low)
    assert isinstance(value, int)
    tag = _head(TAG, _TIME_TAG) if isinstance(value, Milliseconds) else b""
    return tag + (_head(NATURAL, value) if value >= 0 else _head(NEGATIVE, -1 - value))


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    low = next(low for low in (24, 25, 26, 27) if number < 1 << (8 << low - 24))
    return bytes((major << 5 | low,)) + number.to_bytes(1 << low - 24)


class CborReader:
    """Reads the items of a body, one after the other."""

    __slots__ = ("_heads", "at", "body", "replaced")

    at: int

    def __init__(self, body: Body, at: int = 0) -> None:
        self.body: Body = body
        self.at = at  # the offset of the next item
        self._heads = 0  # how many items have begun
        # The fields of outermost maps that a later field of the same name replaced.
        self.replaced: list[tuple[str, object]] = []

    def item(self, depth: int = 0) -> object:
        """Return the next item. Raise CborError.

        Integers with tag 1 become seconds. Other tags are ignored.
        """
        begin = self.at
        major, number = self.head()
        if major == SIMPLE:
            return self._simple(begin)
        if major in (BYTES, TEXT):
            return self._string(major, number)
        if depth == MAX_DEPTH:
            raise CborError(f"more than {MAX_DEPTH} levels")
        if major == ARRAY:
            return [self.item(depth + 1) for _ in self._elements(number)]
        if major == MAP:
            return self._map(number, depth)
        if number is None:
            raise CborError(f"a number or a tag without an end at byte {begin}")
        if major == TAG:
            is_whole = self.body[self.at : self.at + 1] < bytes((BYTES << 5,))
            value = self.item(depth + 1)
            is_time = number == _TIME_TAG and is_whole
            return value / 1000 if is_time else value  # type: ignore[operator]
        return number if major == NATURAL else -1 - number

    def _map(self, number: int | None, depth: int) -> dict[str, object]:
        fields: dict[str, object] = {}
        for _ in self._elements(number):
            name = self.key()
            value = self.item(depth + 1)
            if name in fields and not depth:
                self.replaced.append((name, fields[name]))
            fields[name] = value
        return fields

    def key(self) -> str:
        """Return the next item, which must be a text. Raise CborError."""
        begin = self.at
        major, number = self.head()
        if major != TEXT:
            raise CborError(f"a key that is not a text at byte {begin}")
        return str(self._string(TEXT, number))

    def head(self) -> tuple[int, int | None]:
        """Return the type and the number of the next item. Raise CborError.

        The number of a text, a byte string, an array or a map is its length, which is
        None if the item ends with a break.
        """
        self._heads += 1
        if self._heads > MAX_ITEMS:
            raise CborError(f"more than {MAX_ITEMS:,} items")
        first = self._take(1)[0]
        major, low = first >> 5, first & 31
        if low < 24:
            return major, low
        if low < 28:
            return major, int.from_bytes(self._take(1 << low - 24))
        if low == _INDEFINITE:
            return major, None
        raise CborError(f"the reserved length {low} at byte {self.at - 1}")

    def is_end(self, seen: int, number: int | None) -> bool:
        """Return whether an array or a map of ``number`` elements ends after ``seen``.

        If ``number`` is None, it ends with a break, which is skipped. Raise CborError.
        """
        if number is not None:
            return seen == number
        if self.at == len(self.body):
            raise CborError("the end is missing")
        is_break = self.body[self.at] == _BREAK
        self.at += is_break
        return is_break

    def _elements(self, number: int | None) -> Iterator[int]:
        """Yield before each element of an array or a map. Raise CborError."""
        seen = 0
        while not self.is_end(seen, number):
            yield seen
            seen += 1

    def _take(self, size: int) -> bytes:
        begin, self.at = self.at, self.at + size
        if self.at > len(self.body):
            raise CborError("the end is missing")
        return bytes(self.body[begin : self.at])

    def _string(self, major: int, size: int | None) -> bytes | str:
        if size is None:
            data = b"".join(self._part(major) for _ in self._elements(None))
        else:
            data = self._take(size)
        if major == BYTES:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CborError(f"a text that is not UTF-8: {error}") from error

    def _part(self, major: int) -> bytes:
        found, size = self.head()
        if found != major or size is None:
            raise CborError(f"a part of another type at byte {self.at - 1}")
        return self._take(size)

    def _simple(self, begin: int) -> object:
        low = self.body[begin] & 31
        if low in _CONSTANTS:
            return _CONSTANTS[low]
        if low in _FLOATS:
            value: float = _FLOATS[low].unpack(self.body[begin + 1 : self.at])[0]
            if math.isfinite(value):
                return value
        raise CborError(f"the value 0x{self.body[begin]:02x} at byte {begin}")
