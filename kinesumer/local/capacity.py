"""What a DynamoDB request consumes, by AWS's published rules (moto only guesses)."""

from __future__ import annotations

import math
from base64 import b64decode
from typing import Any, NamedTuple

Item = dict[str, dict[str, Any]]
"""An item as DynamoDB's JSON has it."""


class Units(NamedTuple):
    """Read and write capacity units."""

    read: float = 0.0
    write: float = 0.0


def read_units(items: list[Item], *, consistent: bool) -> float:
    """Return the units of reading items in one request: 4 KB each, half if stale."""
    blocks = max(1, math.ceil(sum(map(item_bytes, items)) / 4096))
    return blocks * (1.0 if consistent else 0.5)


def write_units(old: Item | None, new: Item | None, index_keys: list[str]) -> float:
    """Return the units of one write: 1 KB each, and what it changes in the indexes.

    An index that projects keys only is written when the item's index key changes:
    once if it comes or goes, twice if it moves.
    """
    size = max(item_bytes(old or {}), item_bytes(new or {}), 1)
    units = math.ceil(size / 1024)
    for key in index_keys:
        before, after = (old or {}).get(key), (new or {}).get(key)
        if before != after:
            units += (before is not None) + (after is not None)
    return float(units)


def item_bytes(item: Item) -> int:
    """Return an item's size as DynamoDB counts it."""
    return sum(len(name.encode()) + _value_bytes(item[name]) for name in item)


def _value_bytes(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return len(content.strip("-0.")) // 2 + 2
        case "B":
            return len(content if isinstance(content, bytes) else b64decode(content))
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: part}) for part in content)
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in content)
        case "M":
            return 3 + len(content) + item_bytes(content)
        case _:
            return 1
