"""Test which order takers have in a row, and where a new one begins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.assignment import FREE
from kinesumer.core.load_order import arrange, longest_runs


def sums(*work: int) -> Sequence[int]:
    return [*accumulate(work, initial=0)]


def test_of_several_runs_the_longest_counts_and_of_equal_ones_the_first() -> None:
    assert longest_runs([1, 2, 2, FREE, FREE, FREE, 1, 1, 2]) == {1: (6, 8), 2: (1, 3)}
    assert longest_runs([1, 2, 1]) == {1: (0, 1), 2: (1, 2)}
    assert longest_runs([]) == {}


def test_without_ranges_the_work_is_cut_by_weight() -> None:
    assert arrange(sums(*[1] * 8), {1: 1, 2: 2, 3: 1}, {}, set()) == ([1, 2, 3], [2, 6])


def test_takers_keep_their_order_and_share_what_is_free() -> None:
    spans = {1: (6, 8), 2: (0, 2)}
    assert arrange(sums(*[1] * 8), {1: 1, 2: 1}, spans, set()) == ([2, 1], [4])


def test_a_new_taker_gets_the_free_range_with_the_most_work() -> None:
    spans = {1: (1, 3), 2: (6, 8)}
    order, bounds = arrange(sums(*[1] * 8), {1: 1, 2: 1, 3: 1}, spans, set())
    assert (order, bounds) == ([1, 3, 2], [3, 6])


def test_a_new_taker_gets_its_share_of_the_busiest_range() -> None:
    spans = {1: (0, 2), 2: (2, 8)}
    weights = {1: 1, 2: 2, 3: 1}
    order, bounds = arrange(sums(*[1] * 8), weights, spans, set())
    assert (order, bounds) == ([1, 2, 3], [2, 6])


def test_a_single_slot_is_not_taken_from_its_taker() -> None:
    spans = {1: (0, 1), 2: (1, 3)}
    order, bounds = arrange(sums(90, 1, 1), {1: 1, 2: 1, 3: 1}, spans, set())
    assert (order, bounds) == ([1, 2, 3], [1, 2])


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
