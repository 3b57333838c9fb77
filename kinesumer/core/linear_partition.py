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
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate, pairwise
from typing import NamedTuple

from kinesumer.core.assignment import FREE, runs_of

Span = tuple[int, int]  # the first slot, and the slot after the last one


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


def longest_runs(owner: Sequence[int]) -> dict[int, Span]:
    """Return each owner's longest run, of equal runs the first."""
    spans: dict[int, Span] = {}
    for begin, end in runs_of(owner) if owner else ():
        old_begin, old_end = spans.get(owner[begin], (0, 0))
        if end - begin > old_end - old_begin:
            spans[owner[begin]] = begin, end
    spans.pop(FREE, None)
    return spans


def arrange(
    sums: Sequence[int],
    weights: Mapping[int, int],
    spans: Mapping[int, Span],
    without: Set[int],
) -> tuple[list[int], list[int]]:
    """Return the takers in the order of their slots, and where one follows another.

    Takers keep their spans, and those of ``without`` get none. Each other taker gets
    the most work that is free, or the half of the taker with the most work. The rest of
    the free slots goes to its neighbours.
    """
    segments = _segments(len(sums) - 1, spans or _even_spans(sums, weights))
    held = {segment.taker for segment in segments}
    for new in weights:
        if new not in held and new not in without:
            _insert(sums, weights, segments, new)
    last = len(sums) - 1
    taken = [segment for segment in segments if segment.taker != FREE]
    taken += [_Segment(taker, last, last) for taker in sorted(without)]
    wanted = [
        _nearest(sums, (sums[left.end] + sums[right.begin]) // 2, left.end, right.begin)
        for left, right in pairwise(taken)
    ]
    return [segment.taker for segment in taken], wanted


def _even_spans(sums: Sequence[int], weights: Mapping[int, int]) -> dict[int, Span]:
    """Return spans with work in proportion to the weights, without empty ones."""
    whole = sum(weights.values())
    parts = accumulate(weights.values(), initial=0)
    last = len(sums) - 1
    cuts = [_nearest(sums, sums[-1] * part // whole, 0, last) for part in parts]
    spans = zip(weights, pairwise(cuts), strict=True)
    return {taker: (begin, end) for taker, (begin, end) in spans if begin < end}


class _Segment(NamedTuple):
    """Successive slots of a taker, or FREE ones."""

    taker: int
    begin: int
    end: int


def _segments(count: int, spans: Mapping[int, Span]) -> list[_Segment]:
    segments, at = list[_Segment](), 0
    for taker, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        # If the limits are low, the last slots may be cut off.
        first, stop = min(begin, count), min(end, count)
        if first > at:
            segments.append(_Segment(FREE, at, first))
        segments.append(_Segment(taker, first, stop))
        at = stop
    if at < count:
        segments.append(_Segment(FREE, at, count))
    return segments


def _insert(
    sums: Sequence[int], weights: Mapping[int, int], segments: list[_Segment], new: int
) -> None:
    """Give a new taker a free segment, or its share of another taker's segment.

    It gets the one with the most work. A single slot isn't taken from another taker.
    """
    weight = weights[new]

    def gain(segment: _Segment) -> float:
        taker, begin, end = segment
        if taker == FREE:
            return (sums[end] - sums[begin]) / weight
        if end - begin < 2:
            return -1
        return (sums[end] - sums[begin]) / (weight + weights[taker])

    # The empty segment at the end remains if there is nothing to take.
    last = len(sums) - 1
    empty = _Segment(FREE, last, last)
    found = max([*segments, empty], key=gain)
    if found is empty:
        segments.append(_Segment(new, last, last))
        return
    taker, begin, end = found
    at = segments.index(found)
    if taker == FREE:
        segments[at] = _Segment(new, begin, end)
        return
    old = weights[taker]
    kept = sums[begin] + (sums[end] - sums[begin]) * old // (old + weight)
    middle = _nearest(sums, kept, begin + 1, end - 1)
    segments[at : at + 1] = [
        _Segment(taker, begin, middle),
        _Segment(new, middle, end),
    ]


def _nearest(sums: Sequence[int], value: int, low: int, high: int) -> int:
    """Return the slot from ``low`` to ``high`` before which the work is nearest."""
    at = bisect_left(sums, value, low, high)
    if at > low and value - sums[at - 1] <= sums[at] - value:
        return at - 1
    return at
