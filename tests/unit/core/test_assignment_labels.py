"""Test that each label (zone or cluster) gets its fair share of the shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

from hypothesis import given, settings

from kinesumer.core import plan as plans
from kinesumer.core.assignment import Member, assign_range
from kinesumer.model.rows import MemberRow
from tests.support.shares import (
    Plan,
    Shards,
    all_shards,
    check_shares_in_order,
    check_tiling,
    even,
    fleets,
    loads,
)

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
