"""How fast a process may read a shard, kept from one batch to the next."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from kinesumer.core.fair_share import Share

if TYPE_CHECKING:
    from kinesumer.model.streams import ShardKey

MOST = 10_000
FEWEST_READS_PER_SECOND = 0.6
"""A batch needs several reads of a shard: at a lower rate its records come too late."""


class Pace:
    """One shard's pace: other apps and queries may read the shard, too."""

    __slots__ = ("_next_at", "_refusals", "share")

    def __init__(self) -> None:
        self.share = Share(FEWEST_READS_PER_SECOND)
        self._next_at = 0.0
        self._refusals = 0

    def starts_at(self, now: float) -> float:
        """Return when a batch may begin to read the shard."""
        return now if self.share.whole else max(now, self._next_at)

    def after_page(self, started: float, period: float, payload_bytes: int) -> float:
        """Return when to read again after a page; ``period`` is the least wait."""
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
        """Return when to try again after a read that Kinesis refused as too fast."""
        self._refusals += 1
        if self._refusals == 1:
            self.share.cut(now, 1 / period if period else self.share.rate)
        self._next_at = now + self.share.retry_seconds(self._refusals, jitter)
        return self._next_at


class Paces:
    """The paces of all shards; those read longest ago are forgotten first."""

    def __init__(self, most: int = MOST) -> None:
        self._kept: OrderedDict[ShardKey, Pace] = OrderedDict()
        self._most = most

    def of(self, shard: ShardKey) -> Pace:
        """Return the pace of a shard."""
        pace = self._kept.setdefault(shard, Pace())
        self._kept.move_to_end(shard)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        return pace
