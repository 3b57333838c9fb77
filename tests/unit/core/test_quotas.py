"""Test that slots are divided into fair shares, by weight and up to limits."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.quotas import Claimant, fair_shares, whole_shares

claimants = st.lists(
    st.builds(Claimant, st.integers(1, 9), st.integers(0, 40), st.integers(0, 20)),
    max_size=8,
)


def test_the_example_of_the_module() -> None:
    four = [Claimant(1, 12), Claimant(2, 12), Claimant(1, 1), Claimant(1, 12, held=1)]
    assert whole_shares(12, four) == [3, 6, 1, 2]


def test_limits_that_are_too_low_leave_slots() -> None:
    assert whole_shares(9, [Claimant(1, 2), Claimant(5, 3)]) == [2, 3]
    assert whole_shares(9, []) == []


@given(st.integers(0, 100), claimants)
def test_all_slots_are_divided_that_the_limits_permit(
    slots: int, some: list[Claimant]
) -> None:
    permitted = min(slots, sum(claimant.limit for claimant in some))
    assert sum(fair_shares(slots, some)) == permitted
    assert sum(whole_shares(slots, some)) == permitted


@given(st.integers(0, 100), claimants)
def test_no_claimant_could_get_more_from_one_that_has_more_for_its_weight(
    slots: int, some: list[Claimant]
) -> None:
    """This is the definition of max-min fairness."""
    shares = fair_shares(slots, some)
    found = [
        (each, share, (each.held + share) / each.weight)
        for each, share in zip(some, shares, strict=True)
    ]
    for receiver, share, level in found:
        assert 0 <= share <= receiver.limit
        if share < receiver.limit:
            assert all(other <= level for _, given, other in found if given)


@given(st.integers(0, 100), claimants)
def test_rounding_changes_each_run_of_claimants_by_less_than_a_slot(
    slots: int, some: list[Claimant]
) -> None:
    shares, whole = fair_shares(slots, some), whole_shares(slots, some)
    exact = [*accumulate(shares, initial=Fraction(0))]
    rounded = [*accumulate(whole, initial=0)]
    for first in range(len(some)):
        for end in range(first + 1, len(some) + 1):
            share = exact[end] - exact[first]
            assert abs(rounded[end] - rounded[first] - share) < 1
    for each, size in zip(some, whole, strict=True):
        assert 0 <= size <= each.limit


@pytest.mark.parametrize("clients", [*range(1, 13), 25, 49, 50])
def test_equal_claimants_are_cut_as_by_kinesumer_for_go(clients: int) -> None:
    """Go's cut i is ``math.Round(i * (S / N))``, which rounds halves up.

    Where floating point misses a half, the cut differs from Go's.
    """
    for slots in range(1 + clients % 17, 501, 17):
        sizes = whole_shares(slots, [Claimant(3, slots)] * clients)
        for index, cut in enumerate(accumulate(sizes, initial=0)):
            exact = Fraction(index * slots, clients)
            assert cut == floor(exact + Fraction(1, 2))
            if exact.denominator != 2:
                assert cut == round(float(index) * (float(slots) / float(clients)))
