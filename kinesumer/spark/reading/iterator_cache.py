"""Where reading of shards ended, kept from one batch to the next."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kinesumer.model.positions import Position
    from kinesumer.model.streams import ShardKey

MOST = 10_000
FRESH_SECONDS = 270.0
"""Kinesis forgets an iterator after five minutes."""


class Kept(NamedTuple):
    """The iterator just after a place, and when Kinesis gave it."""

    iterator: str
    since: float


class Iterators:
    """Saves the next batch a call per shard; the oldest are forgotten first.

    An iterator is given once: if a task fails over it, the next try asks for a new one.
    """

    def __init__(self, most: int = MOST) -> None:
        self._kept: OrderedDict[tuple[ShardKey, Position], Kept] = OrderedDict()
        self._most = most

    def keep(self, shard: ShardKey, after: Position, iterator: str, now: float) -> None:
        """Keep the iterator that continues after a position."""
        self._kept[shard, after] = Kept(iterator, now)
        self._kept.move_to_end((shard, after))
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def take(self, shard: ShardKey, after: Position, now: float) -> str | None:
        """Return the iterator after a position, if a fresh one is kept."""
        kept = self._kept.pop((shard, after), None)
        if kept is None or now - kept.since > FRESH_SECONDS:
            return None
        return kept.iterator
