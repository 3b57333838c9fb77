"""Decide what a stream tells of a write to an item."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from decimal import Context, Decimal
from hashlib import md5
from typing import Any, Literal, NamedTuple

Item = dict[str, dict[str, Any]]  # in DynamoDB's JSON
EventName = Literal["INSERT", "MODIFY", "REMOVE"]
ViewType = Literal["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"]
# In a record of an item that expired. See "Working with expired items and time to live"
# in DynamoDB's developer guide.
TTL_IDENTITY = {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}


class Change(NamedTuple):
    """An item before and after a write. None means that there was no such item."""

    keys: Item
    old: Item | None
    new: Item | None
    is_expiry: bool = False  # DynamoDB deleted the item because of its TTL

    @property
    def event_name(self) -> EventName | None:
        """The kind of change, or None if nothing changed.

        DynamoDB writes no record for a PutItem or UpdateItem that changes no data.
        """
        if self.old is None:
            return None if self.new is None else "INSERT"
        if self.new is None:
            return "REMOVE"
        return None if plain(self.old) == plain(self.new) else "MODIFY"


class Images(NamedTuple):
    """The parts of an item that a record has, and their size."""

    content: dict[str, Item]  # Keys, and perhaps NewImage and OldImage
    size_bytes: int


def images_of(change: Change, view: ViewType) -> Images:
    """Return what a stream of a view type shows of a change."""
    content = {"Keys": change.keys}
    if change.new is not None and view in ("NEW_IMAGE", "NEW_AND_OLD_IMAGES"):
        content["NewImage"] = change.new
    if change.old is not None and view in ("OLD_IMAGE", "NEW_AND_OLD_IMAGES"):
        content["OldImage"] = change.old
    return Images(content, sum(map(item_bytes, content.values())))


def event_id(stream_arn: str, sequence_number: str) -> str:
    """Return the id of a record, which no other record has."""
    text = f"{stream_arn} {sequence_number}"
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def partition_text(keys: Item, name: str) -> str:
    """Return a text of an item's partition key. Equal keys have equal texts."""
    return repr(_plain(keys[name]))


# --- values in DynamoDB's JSON --------------------------------------------------------


def plain(item: Item) -> dict[str, object]:
    """Return an item so that equal items are equal: ``1`` and ``1.0``, sets' orders."""
    return {name: _plain(value) for name, value in item.items()}


def _plain(attribute: Mapping[str, Any]) -> tuple[str, object]:
    ((kind, value),) = attribute.items()
    match kind:
        case "N":
            return kind, _number(value)
        case "NS":
            return kind, frozenset(map(_number, value))
        case "SS" | "BS":
            return kind, frozenset(value)
        case "L":
            return kind, tuple(_plain(inner) for inner in value)
        case "M":
            return kind, plain(value)
        case _:
            return kind, value


def _number(text: str) -> Decimal:
    # Numbers have up to 38 digits.
    return Decimal(text).normalize(Context(prec=38))


def item_bytes(item: Item) -> int:
    """Return an item's size as DynamoDB counts it.

    See "DynamoDB item sizes and formats" in DynamoDB's developer guide.
    """
    return sum(
        _text_bytes(name) + _attribute_bytes(value) for name, value in item.items()
    )


def _attribute_bytes(attribute: Mapping[str, Any]) -> int:
    ((kind, value),) = attribute.items()
    match kind:
        case "S":
            return _text_bytes(value)
        case "N":
            return _number_bytes(value)
        case "B":
            return _binary_bytes(value)
        case "SS":
            return sum(map(_text_bytes, value))
        case "NS":
            return sum(map(_number_bytes, value))
        case "BS":
            return sum(map(_binary_bytes, value))
        case "L":
            return 3 + sum(1 + _attribute_bytes(inner) for inner in value)
        case "M":
            return 3 + len(value) + item_bytes(value)
        case _:  # BOOL and NULL
            return 1


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _binary_bytes(value: str | bytes) -> int:
    # In what moto returns, it is not always base64.
    return len(b64decode(value) if isinstance(value, str) else value)


def _number_bytes(number: object) -> int:
    """Return a byte for every two significant digits, and one more."""
    # moto also stores sets of numbers that aren't texts.
    digits = (
        str(number).partition("e")[0].partition("E")[0].strip("-+").replace(".", "")
    )
    return (len(digits.strip("0")) + 1) // 2 + 1
