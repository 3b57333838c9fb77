"""Test that plans divide streams evenly into contiguous ranges, also among labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.core import plan as plans
from kinesumer.core.assignment import (
    Claimant,
    Member,
    assign_range,
    fair_shares,
    whole_shares,
)
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval
from tests.support.shares import (
    Plan,
    Shards,
    all_shards,
    check_shares_in_order,
    check_tiling,
    even,
    fleet,
    fleets,
    loads,
    streams,
    unevenness,
)


@pytest.mark.parametrize("shards", [{"s": even(10)}, {f"s{n}": [0] for n in range(10)}])
def test_halves_are_rounded_as_in_go_within_a_stream_and_over_streams(
    shards: Shards,
) -> None:
    # Python's round() and integer division would give other sizes.
    assert loads(assign_range(fleet(4, *shards), shards), shards) == [3, 2, 3, 2]


def test_a_range_may_cover_the_end_of_one_stream_and_the_start_of_the_next() -> None:
    plan = assign_range(fleet(3, "a", "b"), {"b": [0, 10], "a": [0]})
    end = HASH_KEYS - 1
    assert plan == {
        "c0000": (Interval("a", 0, end),),
        "c0001": (Interval("b", 0, 9),),
        "c0002": (Interval("b", 10, end),),
    }
    assert assign_range(fleet(1, "a", "b"), {"b": [0, 10], "a": [0]}) == {
        "c0000": (Interval("a", 0, end), Interval("b", 0, end))
    }


@given(st.integers(1, 30), all_shards, st.integers(1, 9))
def test_at_equal_weights_sizes_differ_by_one_at_most(
    clients: int, shards: Shards, weight: int
) -> None:
    members = fleet(clients, *shards, weight=weight)
    plan = assign_range(members, shards)
    check_tiling(plan, shards, members)
    sizes = loads(plan, shards)
    assert max(sizes) - min(sizes) <= 1
    assert plan == assign_range(fleet(clients, *shards), shards)


@given(fleets(), all_shards)
def test_for_equal_requests_ranges_are_contiguous_and_as_large_as_the_weights(
    members: list[Member], shards: Shards
) -> None:
    members = [member._replace(streams=frozenset(shards)) for member in members]
    plan = assign_range(members, shards)
    check_shares_in_order(members, plan, shards)


@given(fleets(), all_shards)
def test_streams_go_to_members_that_request_them(
    members: list[Member], shards: Shards
) -> None:
    check_tiling(assign_range(members, shards), shards, members)


@pytest.mark.parametrize(
    ("requests", "counts", "expected"),
    [
        (["ab", "a", "a"], {"a": 6, "b": 3}, [3, 3, 3]),
        (["a", "ab", "abc"], {"a": 8, "b": 5, "c": 2}, [5, 5, 5]),
        (["a", "ab", "bc"], {"a": 2, "b": 8, "c": 5}, [1, 7, 7]),
    ],
)
def test_members_of_later_rows_make_up_for_earlier_ones(
    requests: list[str], counts: dict[str, int], expected: list[int]
) -> None:
    members = [Member(f"{n}", 1, frozenset(arns)) for n, arns in enumerate(requests)]
    shards = {arn: even(count) for arn, count in counts.items()}
    assert loads(assign_range(members, shards), shards) == expected


def test_an_empty_group_or_stream_is_planned() -> None:
    assert assign_range([], {"a": [0]}) == {}
    assert assign_range(fleet(2, "a"), {}) == {"c0000": (), "c0001": ()}
    assert assign_range(fleet(1, "a"), {"b": [0]}) == {"c0000": ()}


@pytest.mark.parametrize(
    ("starts", "ranges"),
    [([], [(0, HASH_KEYS - 1)]), ([5, 9], [(0, 8), (9, HASH_KEYS - 1)])],
)
def test_a_stream_is_tiled_from_0_even_without_a_shard_there(
    starts: list[int], ranges: list[tuple[int, int]]
) -> None:
    plan = assign_range(fleet(len(ranges), "a"), {"a": starts})
    assert [*plan.values()] == [(Interval("a", *range_),) for range_ in ranges]


# --- evenness, against trying everything ----------------------------------------------


def all_loads(members: Sequence[Member], shards: Shards) -> set[tuple[int, ...]]:
    """Return the loads of every possible plan for members and their requests."""
    reached = {tuple(0 for _ in members)}
    for arn, keys in shards.items():
        askers = [n for n, member in enumerate(members) if arn in member.streams]
        for _ in keys if askers else ():
            reached = {
                (*loads[:n], loads[n] + 1, *loads[n + 1 :])
                for loads in reached
                for n in askers
            }
    return reached


few_shards = st.dictionaries(
    streams, st.integers(1, 5).map(lambda n: list(range(n))), min_size=1
)


@st.composite
def nested(draw: st.DrawFn, labels: str = "") -> list[Member]:
    """Return members of which each requests all streams of those with fewer."""
    lists = st.sampled_from(["a", "ab", "abc"])
    members = draw(fleets(most=4, labels=labels))
    return [m._replace(streams=frozenset(draw(lists))) for m in members]


@given(nested(), few_shards)
def test_no_other_assignment_is_more_even_if_requests_are_nested(
    members: list[Member], shards: Shards
) -> None:
    members = [member._replace(weight=1) for member in members]
    least = min(unevenness(sizes, members) for sizes in all_loads(members, shards))
    plan = assign_range(members, shards)
    assert unevenness(loads(plan, shards), members) == least


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


labelled = fleets(labels="xyz", most=12)


def sums(members: Sequence[Member], plan: Plan, shards: Shards) -> Counter[str]:
    """Return how many shards each label has."""
    found = Counter[str]()
    for member, size in zip(members, loads(plan, shards), strict=True):
        found[member.label] += size
    return found


def check_sums(members: Sequence[Member], plan: Plan, shards: Shards) -> None:
    """Check that each label has its share, rounded down or up."""
    check_tiling(plan, shards, members)
    whole = sum(member.weight for member in members)
    slots = sum(map(len, shards.values()))
    for label, size in sums(members, plan, shards).items():
        weight = sum(member.weight for member in members if member.label == label)
        share = Fraction(slots * weight, whole)
        assert floor(share) <= size <= ceil(share), label


def clusters(*sizes: int) -> list[Member]:
    """Return the members of two clusters, whose ids alternate as pods' ids do."""
    return [
        Member(f"{n:04}-{label}", 1, frozenset("s"), label)
        for n in range(max(sizes))
        for label, size in zip("ab", sizes, strict=True)
        if n < size
    ]


def turn_away(members: Sequence[Member]) -> list[Member]:
    return [member._replace(label="") for member in members]


def test_two_clusters_of_a_hundred_share_500_shards_in_halves() -> None:
    members, shards = clusters(100, 100), {"s": even(500)}
    alike = assign_range(turn_away(members), shards)
    assert sums(members, alike, shards) == {"a": 300, "b": 200}
    plan = assign_range(members, shards)
    check_tiling(plan, shards, members)
    assert sums(members, plan, shards) == {"a": 250, "b": 250}
    assert {*loads(plan, shards)} == {2, 3}


@settings(max_examples=60)
@given(labelled, all_shards)
def test_range_gives_labels_their_share_and_stays_contiguous(
    members: list[Member], shards: Shards
) -> None:
    members = [member._replace(streams=frozenset(shards)) for member in members]
    plan = assign_range(members, shards)
    check_sums(members, plan, shards)
    check_shares_in_order(members, plan, shards)


@settings(max_examples=60)
@given(fleets(most=12), all_shards)
def test_one_label_for_all_is_as_good_as_none(
    members: list[Member], shards: Shards
) -> None:
    named = [member._replace(label="x") for member in members]
    assert assign_range(named, shards) == assign_range(members, shards)


@settings(max_examples=60)
@given(fleets(weights=False, labels="xy"), all_shards)
def test_labels_change_the_rounding_only(members: list[Member], shards: Shards) -> None:
    plan = assign_range(members, shards)
    check_tiling(plan, shards, members)
    if len({member.streams for member in members}) == 1:
        alike = assign_range(turn_away(members), shards)
        assert sorted(loads(plan, shards)) == sorted(loads(alike, shards))


def test_a_whole_share_is_exact_although_floating_point_would_round_it() -> None:
    members = [
        Member(f"{n:02}", 1, frozenset("s"), label)
        for n, label in enumerate("x" * 9 + "y" * 6 + "z" * 3)
    ]
    found = sums(members, assign_range(members, {"s": even(147)}), {"s": even(147)})
    assert found["y"] == 49


def test_labels_that_share_no_stream_change_nothing() -> None:
    members = [Member("0", 1, frozenset("a"), "x"), Member("1", 1, frozenset("b"), "y")]
    plan = assign_range(members, {"a": even(6), "b": even(2)})
    assert loads(plan, {"a": even(6), "b": even(2)}) == [6, 2]


def test_a_members_label_counts_in_a_plan() -> None:
    members = [
        MemberRow(m.client_id, m.client_id, streams=m.streams, label=m.label)
        for m in clusters(2, 2)
    ]
    made = plans.make_plan(members, {"s": even(10)}, "range", frozenset())
    sizes = plans.shares(made, {"s": even(10)})
    of_a = [size for client_id, size in sizes.items() if client_id.endswith("a")]
    assert sum(of_a) == 5
