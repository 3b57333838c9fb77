"""The change of a DynamoDB item that a record tells, as plain Python values."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import msgspec

ChangeKind = Literal["INSERT", "MODIFY", "REMOVE"]
Item = dict[str, Any]
"""An item's attributes by name. See ``Change`` for their types."""

# An attribute in DynamoDB's JSON: its type, and its value.
_Attribute = dict[str, Any]
# The principal that removes items because of their time to live.
_TIME_TO_LIVE = "dynamodb.amazonaws.com"
_WHOLE = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one item of a DynamoDB table.

    Values are text, ``int`` or ``Decimal``, ``bytes``, ``bool``, None, lists,
    dictionaries, and sets of text, numbers or bytes. A number without a fraction and
    without an exponent is an ``int``.

    The images that a stream has depend on its view type. An image that it doesn't have
    is None.
    """

    kind: ChangeKind
    keys: Item
    """The item's key attributes."""
    new_image: Item | None
    """The item after the change; None if it was removed."""
    old_image: Item | None
    """The item before the change; None if it was inserted."""
    expired: bool = False
    """True if DynamoDB removed the item because of its time to live."""

    @property
    def image(self) -> Item:
        """The item that ``decode=`` decodes: ``new_image``, or a removed ``old_image``.

        The keys alone if the stream's view type doesn't have that image.
        """
        image = self.old_image if self.kind == "REMOVE" else self.new_image
        return self.keys if image is None else image


class _Part(msgspec.Struct, rename="pascal"):
    keys: dict[str, _Attribute]
    new_image: dict[str, _Attribute] | None = None
    old_image: dict[str, _Attribute] | None = None


class _Body(msgspec.Struct, rename="camel"):
    event_name: ChangeKind
    dynamodb: _Part
    # DynamoDB Streams and Lambda spell its fields differently.
    user_identity: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Body).decode


def read_change(data: bytes) -> Change:
    """Return the change that the JSON of a record tells.

    The JSON is that of DynamoDB Streams, or of a Kinesis data stream for DynamoDB.
    Raise msgspec.DecodeError or ValueError for other data. The errors do not quote it.
    """
    body = _decode(data)
    part, user = body.dynamodb, body.user_identity or {}
    principal = user.get("PrincipalId", user.get("principalId"))
    return Change(
        kind=body.event_name,
        keys=read_item(part.keys),
        new_image=None if part.new_image is None else read_item(part.new_image),
        old_image=None if part.old_image is None else read_item(part.old_image),
        expired=body.event_name == "REMOVE" and principal == _TIME_TO_LIVE,
    )


def read_item(attributes: Mapping[str, _Attribute]) -> Item:
    """Return the attributes of an item in DynamoDB's JSON as plain values.

    Raise ValueError for a value that isn't DynamoDB's JSON.
    """
    return {name: _value(attribute) for name, attribute in attributes.items()}


def _value(attribute: object) -> Any:
    if not isinstance(attribute, dict) or len(attribute) != 1:
        raise ValueError("an attribute must be one type with its value")
    [(kind, value)] = attribute.items()
    read, expected = _READERS.get(kind, (None, object))
    if read is None:
        raise ValueError("an attribute's type must be one of DynamoDB's")
    if not isinstance(value, expected):
        raise ValueError(
            f"the value of an attribute of type {kind} must have that type"
        )
    return read(value)


def _number(text: object) -> int | Decimal:
    if not isinstance(text, str):
        raise ValueError("a number must be written as a text")
    try:
        return int(text) if _WHOLE.fullmatch(text) else Decimal(text)
    except ArithmeticError:
        raise ValueError("a number must be decimal") from None


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("a binary value must be written as a text")
    return base64.b64decode(text, validate=True)


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError("a text must be a JSON string")
    return text


# How the value of each type of attribute is read, and what it is in JSON.
_READERS: dict[str, tuple[Callable[[Any], Any], type]] = {
    "S": (_text, str),
    "N": (_number, str),
    "B": (_bytes, str),
    "BOOL": (bool, bool),
    "NULL": (lambda _: None, bool),
    "M": (read_item, dict),
    "L": (lambda values: [_value(value) for value in values], list),
    "SS": (lambda values: {_text(value) for value in values}, list),
    "NS": (lambda values: {_number(value) for value in values}, list),
    "BS": (lambda values: {_bytes(value) for value in values}, list),
}
