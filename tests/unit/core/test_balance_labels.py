"""Test that each label (zone or cluster) gets its fair share of the shards."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import groupby
from math import ceil, floor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.core import plan as plans
from kinesumer.core.assignment import Member, assign_range, assign_sticky
from kinesumer.model.rows import MemberRow
from tests.unit.core.shares import (
    Owners,
    Plan,
    Shards,
    all_shards,
    check_shares_in_order,
    check_tiling,
    even,
    fleets,
    loads,
    owners,
    runs,
    unevenness,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    for plan in (
        assign_range(members, shards),
        assign_sticky(members, shards, {}),
        assign_sticky(members, shards, alike),
    ):
        check_tiling(plan, shards, members)
        assert sums(members, plan, shards) == {"a": 250, "b": 250}
        assert {*loads(plan, shards)} == {2, 3}
    # The last plan moves only the 50 shards that label "a" had too many.
    before, after = owners(alike, shards), owners(plan, shards)
    assert sum(before[shard] != after[shard] for shard in after) == 50


def test_a_label_that_loses_a_member_gives_away_its_share_only() -> None:
    members, shards = clusters(3, 3), {"s": even(12)}
    plan = assign_sticky(members, shards, {})
    left = members[1:]
    after = assign_sticky(left, shards, plan)
    check_sums(left, after, shards)
    before = owners(plan, shards)
    moved = [s for s, owner in owners(after, shards).items() if before[s] != owner]
    assert len(moved) == 2


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
@given(st.lists(labelled, min_size=2, max_size=4), all_shards, st.integers(1, 3))
def test_sticky_gives_labels_their_share_through_every_change(
    turns: list[list[Member]], shards: Shards, weight: int
) -> None:
    plan: Plan = {}
    for drawn in turns:
        members = [member._replace(streams=frozenset(shards)) for member in drawn]
        check_sums(members, assign_sticky(members, shards, plan), shards)
        alike = [member._replace(weight=weight) for member in members]
        plan = assign_sticky(alike, shards, plan)
        check_sums(alike, plan, shards)
        assert max(loads(plan, shards)) - min(loads(plan, shards)) <= 1
        assert assign_sticky(alike, shards, plan) == plan


@settings(max_examples=60)
@given(fleets(most=12), all_shards, fleets(most=12))
def test_one_label_for_all_is_as_good_as_none(
    members: list[Member], shards: Shards, others: list[Member]
) -> None:
    named = [member._replace(label="x") for member in members]
    before = assign_range(others, shards)
    assert assign_range(named, shards) == assign_range(members, shards)
    assert assign_sticky(named, shards, before) == assign_sticky(
        members, shards, before
    )


@settings(max_examples=60)
@given(fleets(labels="xy"), all_shards, fleets())
def test_even_members_come_before_even_labels(
    members: list[Member], shards: Shards, others: list[Member]
) -> None:
    plain = turn_away(members)
    asked = {tuple(arn in member.streams for member in members) for arn in shards}
    if sum(map(any, asked)) < 2:
        return
    before = assign_range(others, shards)
    for plan, alike in (
        (assign_range(members, shards), assign_range(plain, shards)),
        (
            assign_sticky(members, shards, before),
            assign_sticky(plain, shards, before),
        ),
    ):
        check_tiling(plan, shards, members)
        least = unevenness(loads(alike, shards), plain)
        assert unevenness(loads(plan, shards), members) == least


@pytest.mark.parametrize(
    ("labels", "weight", "askers_of_a", "shards_of_a", "expected"),
    [
        ("xxy", 2, {1}, 2, {"x": 2, "y": 1}),
        ("yyx", 1, {0, 2}, 1, {"y": 1, "x": 1}),
        ("xxxy", 1, {0, 1}, 2, {"x": 2, "y": 1}),
    ],
)
def test_the_shard_that_all_request_goes_to_the_label_that_lacks_it(
    labels: str,
    weight: int,
    askers_of_a: set[int],
    shards_of_a: int,
    expected: dict[str, int],
) -> None:
    members = [
        Member(f"{n}", weight, frozenset("ab" if n in askers_of_a else "b"), label)
        for n, label in enumerate(labels)
    ]
    shards = {"a": even(shards_of_a), "b": even(1)}
    assert sums(members, assign_range(members, shards), shards) == expected
    assert sums(members, assign_sticky(members, shards, {}), shards) == expected


def test_the_rest_goes_to_the_label_with_the_largest_fraction() -> None:
    members = [
        Member("0", 9, frozenset("s"), "b"),
        Member("1", 16, frozenset("s"), "a"),
    ]
    plan = assign_sticky(members, {"s": even(5)}, {})
    assert sums(members, plan, {"s": even(5)}) == {"b": 2, "a": 3}


@pytest.mark.parametrize(
    ("weights", "labels", "before", "expected"),
    [
        # A label whose share is a whole number keeps just that, though it had all.
        ([2, 1, 1], "xyz", [6], [3, 2, 1]),
        # Of the shards that a label may keep, each member keeps its own.
        ([1, 1, 1], "xxy", [1, 3], [1, 2, 1]),
        # Of four shards, one label must get two: a label that already has two.
        ([1, 1, 1], "abc", [0, 2, 2], [1, 2, 1]),
    ],
)
def test_a_label_keeps_its_share_of_what_it_had(
    weights: list[int], labels: str, before: list[int], expected: list[int]
) -> None:
    members = [
        Member(f"c{n}", weight, frozenset("s"), label)
        for n, (weight, label) in enumerate(zip(weights, labels, strict=True))
    ]
    count = sum(before)
    lengths = [(f"c{n}", length) for n, length in enumerate(before) if length]
    plan = assign_sticky(members, {"s": even(count)}, runs("s", *lengths))
    assert loads(plan, {"s": even(count)}) == expected


def test_a_whole_share_is_exact_although_floating_point_would_round_it() -> None:
    members = [
        Member(f"{n:02}", 1, frozenset("s"), label)
        for n, label in enumerate("x" * 9 + "y" * 6 + "z" * 3)
    ]
    found = sums(members, assign_range(members, {"s": even(147)}), {"s": even(147)})
    assert found["y"] == 49


@pytest.mark.parametrize("assignor", ["range", "sticky"])
def test_labels_decide_between_equally_even_plans(assignor: str) -> None:
    s = {"s": even(6), "t": even(2)}
    members = [
        Member(f"{n}", 1, frozenset("st" if label == "a" else "s"), label)
        for n, label in enumerate("ababb")
    ]
    plan = assign_range(members, s)
    if assignor == "sticky":
        plan = assign_sticky(members, s, assign_range(turn_away(members), s))
    assert sums(members, plan, s) == {"a": 3, "b": 5}
    assert sorted(loads(plan, s)) == [1, 1, 2, 2, 2]


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


def test_runs_stay_few_with_labels() -> None:
    shards = {"s": even(500)}
    plan = assign_sticky(clusters(100, 100), shards, {})
    held: Owners = owners(plan, shards)
    runs = [client for client, _ in groupby(held[shard] for shard in sorted(held))]
    assert len(runs) <= 2 * 200
