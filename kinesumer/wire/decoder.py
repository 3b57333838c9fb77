"""Finds the compiled decoder. With it, records are read in CBOR, and otherwise in JSON.

CBOR has no Base64. Without the compiled decoder, JSON is faster, because msgspec's
decoder of JSON is compiled, too.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Literal, Protocol, cast

from kinesumer.model.records import Record

Body = bytes | bytearray


class Compiled(Protocol):
    """The functions of ``_native.c``. Each raises ValueError for an unusual body."""

    def decode(self, body: Body, /) -> object:
        """Return a body as an object. A time is a float, in seconds."""
        ...

    def read_page(
        self, body: Body, type_: Callable[..., Record], /
    ) -> tuple[list[Record], dict[str, object]]:
        """Return the records of a page, and the page's other fields."""
        ...

    def read_columns(
        self, body: Body, prefix: bytes, /
    ) -> tuple[int, bool, tuple[bytes, ...], dict[str, object]]:
        """Return the number of records, and their columns as buffers of Arrow.

        Also return whether the data of at least one record begins with the prefix, and
        the page's other fields.
        """
        ...


def find_compiled() -> Compiled | None:
    """Return the compiled decoder, or None if it was built without a C compiler."""
    try:
        return cast("Compiled", import_module("kinesumer.wire._native"))
    except ModuleNotFoundError:
        return None


compiled: Compiled | None = find_compiled()


def decoder() -> Literal["compiled", "json"]:
    """Return which decoder is in use: that of CBOR in C, or that of JSON."""
    return "json" if compiled is None else "compiled"
