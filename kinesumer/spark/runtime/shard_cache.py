"""Iterators and read rates of shards, retained from one batch to the next."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.fair_share import Share

if TYPE_CHECKING:
    from kinesumer.model.positions import Position
    from kinesumer.model.streams import ShardKey

MAX_CACHED_SHARDS = 10_000
MIN_READS_PER_SECOND = 0.6
"""A batch needs several reads of a shard. A lower rate would delay it too much."""


class ShardPace:
    """The read rate of a shard that other apps and queries may read, too."""

    __slots__ = ("_next_at", "_refusals", "share")

    def __init__(self) -> None:
        self.share = Share(MIN_READS_PER_SECOND)
        self._next_at = 0.0
        self._refusals = 0

    def starts_at(self, now: float) -> float:
        """Return the earliest time of a batch's first read."""
        return now if self.share.whole else max(now, self._next_at)

    def after_page(self, started: float, period: float, payload_bytes: int) -> float:
        """Return the next read's time after a page; ``period`` is the minimum wait."""
        self._refusals = 0
        wait = period
        if not self.share.whole:
            shared = self.share.pause_seconds(payload_bytes)
            if shared > period:
                self.share.grow(shared)
            wait = max(period, shared)
        self._next_at = started + wait
        return self._next_at

    def after_throttle(self, now: float, period: float, jitter: float) -> float:
        """Return the time of the next try after a throttled read."""
        self._refusals += 1
        if self._refusals == 1:
            self.share.cut(now, 1 / period if period else self.share.rate)
        self._next_at = now + self.share.retry_seconds(self._refusals, jitter)
        return self._next_at


class PaceCache:
    """Read rates of all shards. The least recently used is dropped first."""

    def __init__(self, max_shards: int = MAX_CACHED_SHARDS) -> None:
        self._kept: OrderedDict[ShardKey, ShardPace] = OrderedDict()
        self._max_shards = max_shards

    def of(self, shard: ShardKey) -> ShardPace:
        """Return a shard's read rate."""
        pace = self._kept.setdefault(shard, ShardPace())
        self._kept.move_to_end(shard)
        if len(self._kept) > self._max_shards:
            self._kept.popitem(last=False)
        return pace


MAX_CACHED_SHARDS = 10_000
FRESH_SECONDS = 270.0
"""An iterator expires after five minutes."""


class CachedIterator(NamedTuple):
    """An iterator after a position, and the time at which Kinesis returned it."""

    iterator: str
    since: float


class IteratorCache:
    """Iterators that save the next batch a call per shard. The oldest is dropped first.

    Each iterator is returned once: if a task fails with it, its retry gets another.
    """

    def __init__(self, max_shards: int = MAX_CACHED_SHARDS) -> None:
        self._kept: OrderedDict[tuple[ShardKey, Position], CachedIterator] = (
            OrderedDict()
        )
        self._max_shards = max_shards

    def keep(self, shard: ShardKey, after: Position, iterator: str, now: float) -> None:
        """Store the iterator after a position."""
        self._kept[shard, after] = CachedIterator(iterator, now)
        self._kept.move_to_end((shard, after))
        if len(self._kept) > self._max_shards:
            self._kept.popitem(last=False)

    def take(self, shard: ShardKey, after: Position, now: float) -> str | None:
        """Remove and return the iterator after a position, unless it has expired."""
        kept = self._kept.pop((shard, after), None)
        if kept is None or now - kept.since > FRESH_SECONDS:
            return None
        return kept.iterator
