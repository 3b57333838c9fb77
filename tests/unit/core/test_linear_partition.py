"""Test the cuts of linear partitioning, against trying all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations_with_replacement, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.assignment import FREE
from kinesumer.core.linear_partition import (
    Partition,
    Span,
    Taker,
    arrange,
    longest_runs,
)

NO_LIMIT = 99


def row(work: Sequence[int], takers: Sequence[Taker]) -> Partition:
    return Partition([*accumulate(work, initial=0)], takers)


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """Return rows of which the limits permit all slots."""
    takers = st.builds(
        Taker,
        st.integers(1, 3),
        st.integers(0, 4) | st.just(NO_LIMIT),
        st.just(0) | st.integers(0, 20),
    )
    drawn = draw(st.lists(takers, min_size=1, max_size=4))
    permitted = min(7, sum(taker.limit for taker in drawn))
    return row(draw(st.lists(st.integers(0, 20), max_size=permitted)), drawn)


def all_bounds(partition: Partition) -> Iterator[list[int]]:
    """Yield all ways to cut a row that the limits permit."""
    count = len(partition.sums) - 1
    inner = range(count + 1)
    for cuts in combinations_with_replacement(inner, len(partition.takers) - 1):
        bounds = [0, *cuts, count]
        spans = zip(partition.takers, pairwise(bounds), strict=True)
        if all(end - begin <= taker.limit for taker, (begin, end) in spans):
            yield bounds


def test_the_example_of_the_module() -> None:
    partition = row([5, 1, 1, 1, 4, 4], [Taker(1, NO_LIMIT)] * 3)
    assert partition.lowest_top() == 6
    assert partition.nearest([0, 6, 6, 6], 6) == [0, 2, 5, 6]
    for first in (1, 2, 3):
        assert partition.fits([0, first, 5, 6], 7)
        assert partition.nearest([0, first, 5, 6], 7) == [0, first, 5, 6]
    assert not partition.fits([0, 4, 5, 6], 7)


@given(partitions())
def test_the_lowest_top_is_that_of_the_best_of_all_cuts(partition: Partition) -> None:
    lowest, every = partition.lowest_top(), [*all_bounds(partition)]
    assert any(partition.fits(bounds, lowest) for bounds in every)
    if lowest:
        assert not any(partition.fits(bounds, lowest - 1) for bounds in every)


@given(partitions(), st.integers(0, 100))
def test_bounds_fit_exactly_if_their_top_is_not_too_high(
    partition: Partition, top: int
) -> None:
    for bounds in all_bounds(partition):
        assert partition.fits(bounds, top) is (partition.top(bounds) <= top)


@given(partitions(), st.integers(0, 20), st.data())
def test_bounds_move_only_as_far_as_the_top_requires(
    partition: Partition, more: int, data: st.DataObject
) -> None:
    top, count = partition.lowest_top() + more, len(partition.sums) - 1
    inner = st.lists(
        st.integers(0, count),
        min_size=len(partition.takers) - 1,
        max_size=len(partition.takers) - 1,
    )
    wanted = [0, *sorted(data.draw(inner)), count]
    found = partition.nearest(wanted, top)
    possible = [b for b in all_bounds(partition) if partition.fits(b, top)]
    assert found in possible
    for at in range(1, len(wanted)):
        # Of all cuts with the same bounds before it, each bound is the nearest.
        same = [bounds for bounds in possible if bounds[:at] == found[:at]]
        nearest = min(abs(bounds[at] - wanted[at]) for bounds in same)
        assert abs(found[at] - wanted[at]) == nearest


@given(partitions())
def test_bounds_that_fit_stay(partition: Partition) -> None:
    top = partition.lowest_top()
    for bounds in all_bounds(partition):
        if partition.fits(bounds, top):
            assert partition.nearest(bounds, top) == bounds


@pytest.mark.parametrize(("load", "top"), [(0, 0.0), (1, 10.0)])
def test_a_single_slot_counts_only_beside_work_elsewhere(load: int, top: float) -> None:
    partition = row([9], [Taker(1, NO_LIMIT, load)])
    assert partition.top([0, 1]) == top
    assert partition.lowest_top() == top


def sums(*work: int) -> Sequence[int]:
    return [*accumulate(work, initial=0)]


def test_of_several_runs_the_longest_counts_and_of_equal_ones_the_first() -> None:
    assert longest_runs([1, 2, 2, FREE, FREE, FREE, 1, 1, 2]) == {1: (6, 8), 2: (1, 3)}
    assert longest_runs([1, 2, 1]) == {1: (0, 1), 2: (1, 2)}
    assert longest_runs([]) == {}


@pytest.mark.parametrize(
    ("work", "weights", "spans", "expected"),
    [
        # without ranges, the work is cut by weight
        ([1] * 8, (1, 2, 1), {}, ([1, 2, 3], [2, 6])),
        # takers keep their order, and share what is free
        ([1] * 8, (1, 1), {1: (6, 8), 2: (0, 2)}, ([2, 1], [4])),
        # a new taker gets the free range with the most work
        ([1] * 8, (1, 1, 1), {1: (1, 3), 2: (6, 8)}, ([1, 3, 2], [3, 6])),
        # or its share of the busiest range
        ([1] * 8, (1, 2, 1), {1: (0, 2), 2: (2, 8)}, ([1, 2, 3], [2, 6])),
        # a single slot isn't taken from its taker
        ([90, 1, 1], (1, 1, 1), {1: (0, 1), 2: (1, 3)}, ([1, 2, 3], [1, 2])),
    ],
)
def test_takers_keep_their_ranges_and_new_ones_get_a_share(
    work: list[int],
    weights: tuple[int, ...],
    spans: dict[int, Span],
    expected: tuple[list[int], list[int]],
) -> None:
    assert arrange(sums(*work), dict(enumerate(weights, 1)), spans, set()) == expected


@given(
    st.lists(st.integers(0, 9), max_size=9),
    st.lists(st.integers(0, 4), max_size=9),
    st.sets(st.integers(0, 4), max_size=2),
)
def test_each_taker_has_one_place_and_bounds_ascend(
    work: list[int], owner: list[int], without: set[int]
) -> None:
    spans = longest_runs(owner[: len(work)])
    idle = without - spans.keys() if spans else set[int]()
    weights = dict.fromkeys(range(5), 1)
    order, bounds = arrange(sums(*work), weights, spans, idle)
    assert sorted(order) == sorted(weights)
    assert bounds == sorted(bounds)
    assert len(bounds) == len(order) - 1
