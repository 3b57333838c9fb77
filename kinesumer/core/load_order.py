"""Order the takers of a row, and find a place for new ones."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from itertools import accumulate, pairwise
from typing import NamedTuple

from kinesumer.core.assignment import FREE, runs_of

Span = tuple[int, int]  # the first slot, and the slot after the last one


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
