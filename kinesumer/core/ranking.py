"""Select the greatest values so that noise rarely changes the selection."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kinesumer.model.streams import ShardKey

K = TypeVar("K", bound="ShardKey | str")

# A value replaces a selected one if it is greater by more than this factor.
KEEP_RATIO = 1.5


def greatest(
    values: Mapping[K, float], selected: Collection[K], count: int
) -> tuple[K, ...]:
    """Return the keys of the ``count`` greatest values, the greatest first.

    ``selected`` are the keys that were selected before. They are preferred.
    """

    def order(key: K) -> tuple[float, bool, K]:
        is_new = key not in selected
        return -values[key] * (1 if is_new else KEEP_RATIO), is_new, key

    return tuple(sorted(values, key=order)[:count])
