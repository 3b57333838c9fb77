"""Since when what many looks show has been as it is: heartbeats, positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

K = TypeVar("K")
V = TypeVar("V")


def unchanged(
    before: Mapping[K, tuple[V, float]], values: Mapping[K, V], now: float
) -> dict[K, tuple[V, float]]:
    """Return each value with the moment of the first of the looks that showed it."""
    return {
        key: seen
        if (seen := before.get(key)) is not None and seen[0] == value
        else (value, now)
        for key, value in values.items()
    }
