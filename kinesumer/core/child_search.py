"""Decide which call of DescribeStream finds the children of closed shards.

A call answers the children of one shard, or lists a hundred shards. A few closed shards
are asked for one by one. If many have closed, as when all shards of a table close at
the same moment, a search lists what was opened after them.

The readers of the closed shards make the calls, one at a time, and otherwise read
again. So no reader waits for a search of a hundred pages, and a call that is refused
only delays it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kinesumer.core.backoff import CALL_BACKOFF
from kinesumer.model.streams import Shard

# The time between two calls. AWS permits ten a second in an account: leave half of
# them to others.
PAGE_SECONDS = 0.2
# So many shards are asked for in a second.
FEW_SHARDS = 5
# A closed shard that wasn't read for this time belongs to another client by now: its
# reader waits at most 5 seconds.
FORGET_SECONDS = 30.0


class OfShard(NamedTuple):
    """Ask for the children of one shard."""

    shard_id: str


class PageAfter(NamedTuple):
    """List the shards after one."""

    shard_id: str


class ChildSearch:
    """The search of one client for the children of a stream's closed shards.

    All times are in seconds of one clock.
    """

    def __init__(self) -> None:
        # The closed shards without known children, and when each was read last.
        self._closed: dict[str, float] = {}
        self._found: dict[str, tuple[Shard, ...]] = {}  # by the last search
        self._after: str | None = None  # the running search continues after this shard
        self._wanted: set[str] = set()  # the closed shards when it began
        self._missed: set[str] = set()  # those that no search has found
        self._pages = 0  # of the last search
        self._failures = 0
        self._next_at = 0.0
        self._is_calling = False

    def children(self, shard_id: str) -> tuple[Shard, ...]:
        """Return the children of a closed shard that a search has found."""
        return self._found.get(shard_id, ())

    def next_call(self, shard_id: str, now: float) -> OfShard | PageAfter | None:
        """Return the call that the reader of a closed shard should make, if any.

        ``answered()``, ``listed()`` or ``failed()`` takes its outcome.
        """
        self._closed[shard_id] = now
        if self._is_calling or now < self._next_at:
            return None
        self._forget(now)
        self._is_calling = True
        if len(self._closed) <= FEW_SHARDS:
            self._after = None
        elif self._after is None and len(self._closed) > self._pages:
            # A child is opened when its parent closes. If another closed shard is
            # younger than the child, the search misses the child.
            self._after, self._pages = max(self._closed), 0
            self._wanted, self._found = set(self._closed), {}
        if self._after is None or shard_id in self._missed:
            return OfShard(shard_id)
        return PageAfter(self._after)

    def answered(self, shard_id: str, now: float) -> None:
        """Note that a shard's own children are known, or that none is listed."""
        self._closed.pop(shard_id, None)
        self._go_on(now)

    def listed(self, shards: Iterable[Shard], last: str | None, now: float) -> None:
        """Take a page of the search. It is complete if there is no ``last`` shard."""
        for shard in shards:
            for parent in shard.parents:
                self._found[parent] = (*self._found.get(parent, ()), shard)
                self._closed.pop(parent, None)
        self._after, self._pages = last, self._pages + 1
        if last is None:
            self._missed = self._wanted - self._found.keys()
        self._go_on(now)

    def failed(self, now: float) -> None:
        """Note that a call failed, or was refused."""
        self._failures += 1
        self._is_calling = False
        self._next_at = now + CALL_BACKOFF.limit_seconds(self._failures)

    def _go_on(self, now: float) -> None:
        self._failures, self._is_calling = 0, False
        self._next_at = now + PAGE_SECONDS

    def _forget(self, now: float) -> None:
        self._closed = {
            shard_id: read_at
            for shard_id, read_at in self._closed.items()
            if now - read_at < FORGET_SECONDS
        }
        self._missed &= self._closed.keys()
