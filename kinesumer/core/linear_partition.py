"""Linear partitioning: cut a row of slots into ranges so that the greatest is smallest.

The textbook problem: slots with given work stand in a row, and takers in a given order
get successive ranges of them. Which cuts make the work of the busiest taker, the *top*,
as low as possible? A greedy pass tells whether a top is possible: each taker gets as
many slots as the top permits. A binary search finds the lowest possible top.

For example, three takers cut a row with the work 5 1 1 1 4 4. The top 5 is too low: the
pass gives 5 | 1 1 1 | 4, and the last slot has no taker. The lowest top is 6, with
5 1 | 1 1 4 | 4. If the top may be 7, there is a choice: the first taker may have 5, 5 1
or 5 1 1. So a bound that lies there already may stay.

Takers have weights, limits, and work elsewhere. A top is therefore work per weight. A
single slot exceeds no top, because no cut can make it smaller.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Taker(NamedTuple):
    """One that gets a range of the row."""

    weight: int
    limit: int  # the greatest number of slots
    load: int = 0  # its work elsewhere


class Partition(NamedTuple):
    """A row, and its takers in the order of their ranges.

    The takers' limits permit all slots. *Bounds* are the first slot of each taker, and
    the number of slots at the end.
    """

    sums: Sequence[int]  # the work before each slot, and that of all slots
    takers: Sequence[Taker]

    @property
    def most(self) -> int:
        """A top that nothing exceeds: all work of the takers."""
        return self.sums[-1] + sum(taker.load for taker in self.takers)

    def lowest_top(self) -> int:
        """Return the lowest possible top."""
        tops = range(self.most)
        return bisect_left(tops, True, key=lambda top: self._firsts(top)[0] == 0)

    def top(self, bounds: Sequence[int]) -> float:
        """Return the greatest work per weight of ranges that a cut could make smaller.

        If there are none, return 0.
        """
        return max(
            (
                (self.sums[end] - self.sums[begin] + taker.load) / taker.weight
                for taker, (begin, end) in zip(
                    self.takers, pairwise(bounds), strict=True
                )
                if end - begin > 1 or (taker.load and end > begin)
            ),
            default=0.0,
        )

    def fits(self, bounds: Sequence[int], top: int) -> bool:
        """Return whether bounds keep to ``top`` and to all limits."""
        return all(
            end == begin or self._reach(taker, begin, top) >= end
            for taker, (begin, end) in zip(self.takers, pairwise(bounds), strict=True)
        )

    def nearest(self, bounds: Sequence[int], top: int) -> list[int]:
        """Return bounds that keep to a possible ``top``, near to the given ones."""
        lowest, found = [*self._firsts(top)[1:], bounds[-1]], [0]
        for taker, bound, first in zip(self.takers, bounds[1:], lowest, strict=True):
            begin = found[-1]
            furthest = self._reach(taker, begin, top)
            found.append(min(max(bound, first, begin), furthest))
        return found

    def _reach(self, taker: Taker, begin: int, top: int) -> int:
        """Return the greatest end of a range of a taker that begins at a slot."""
        budget = self.sums[begin] + max(0, top * taker.weight - taker.load)
        end = bisect_right(self.sums, budget) - 1
        if not taker.load:
            end = max(end, begin + 1)
        return min(end, begin + taker.limit, len(self.sums) - 1)

    def _firsts(self, top: int) -> list[int]:
        """Return the lowest slot from which each taker and the next reach the end.

        The first taker's is 0 only if the top is possible.
        """
        end, found = len(self.sums) - 1, []
        for taker in reversed(self.takers):
            budget = self.sums[end] - max(0, top * taker.weight - taker.load)
            begin = min(bisect_left(self.sums, budget), end)
            if not taker.load:
                begin = min(begin, end - 1)
            end = max(begin, end - taker.limit, 0)
            found.append(end)
        return found[::-1]
