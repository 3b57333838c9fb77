"""Fair queueing: items wait by key, and the keys take turns.

The next turn goes to the key whose last turn began longest ago. For example, shard A
has three batches, and B and C have one each. If A had the last turn, the order is B, C,
A, A, A. So while S keys have items, each of them waits for at most S - 1 turns of
others, and a key that has had no items for a long time is next.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
T = TypeVar("T")

# User code that works at one record after the other ends its turn after this time. A
# change to another shard takes 0.2 ms at most, between threads. So it costs less than
# 0.5 % of the time.
TURN_SECONDS = 0.05


class Turns(Generic[K, T]):
    """Queues items by key. Those of one key keep their order."""

    def __init__(self) -> None:
        self._items: dict[K, deque[T]] = {}  # of the keys that have items
        # The number of each key's last turn.
        self._last: WeakKeyDictionary[K, int] = WeakKeyDictionary()
        # A heap with one entry for each key that has items: the number of its last
        # turn, which may be outdated, and a number that puts equal ones in order.
        self._order: list[tuple[int, int, K]] = []
        self._numbers = count(1)

    def __bool__(self) -> bool:
        """Return whether there are items."""
        return bool(self._items)

    def put(self, key: K, item: T) -> None:
        """Add an item behind the other items of its key."""
        items = self._items.get(key)
        if items is not None:
            items.append(item)
            return
        self._items[key] = deque((item,))
        heappush(self._order, (self.last_turn(key), next(self._numbers), key))

    def take(self) -> tuple[K, T]:
        """Remove and return the first item of the key that is next, and the key.

        This does not begin a turn. Raises IndexError if there are no items.
        """
        key = self._next_key()
        items = self._items[key]
        item = items.popleft()
        if not items:
            heappop(self._order)
            del self._items[key]
        return key, item

    def begin(self, key: K) -> None:
        """Record that a turn of a key begins. It may have no items here."""
        self._last[key] = next(self._numbers)

    def last_turn(self, key: K) -> int:
        """Return the number of a key's last turn; 0 if it had none."""
        return self._last.get(key, 0)

    @property
    def next_turn(self) -> float:
        """The ``last_turn()`` of the key that is next; infinite without items."""
        return self.last_turn(self._next_key()) if self._items else math.inf

    def drop(self, key: K) -> Iterable[T]:
        """Remove and return all items of a key."""
        items = self._items.pop(key, None)
        if items is None:
            return ()
        self._order = [entry for entry in self._order if entry[2] != key]
        heapify(self._order)
        return items

    def __iter__(self) -> Iterator[tuple[K, Iterable[T]]]:
        """Yield each key that has items, and its items."""
        yield from self._items.items()

    def _next_key(self) -> K:
        while True:
            turn, _, key = self._order[0]
            last = self.last_turn(key)
            if turn == last:
                return key
            heapreplace(self._order, (last, next(self._numbers), key))
