"""Test that only orphaned shards and those above a fair share move."""

from __future__ import annotations

from collections import Counter
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.assignment import Member, assign_range, assign_sticky
from kinesumer.model.streams import HASH_KEYS, Interval
from tests.unit.core.shares import (
    Owners,
    Plan,
    Shards,
    all_shards,
    check_tiling,
    even,
    fleet,
    fleets,
    loads,
    owners,
    runs,
)


def moves(before: Owners, after: Owners) -> int:
    """Return how many shards had another owner before, or none."""
    return sum(before.get(shard) != client for shard, client in after.items())


def least_moves(members: list[Member], before: Owners, after: Owners) -> int:
    """Return the fewest moves of any even plan if all members request all shards.

    Tries all permutations of the numbers of shards that members get.
    """
    sizes = [n for _, n in sorted(Counter(after.values()).items())]
    sizes += [0] * (len(members) - len(sizes))
    kept = Counter(client for shard, client in before.items() if shard in after)
    return min(
        len(after)
        - sum(min(kept[m.client_id], n) for m, n in zip(members, given, strict=True))
        for given in set(permutations(sizes))
    )


@given(st.data(), all_shards)
def test_sticky_moves_orphans_and_excess_only(
    data: st.DataObject, shards: Shards
) -> None:
    everything = frozenset(shards)

    def some_fleet() -> list[Member]:
        drawn = data.draw(fleets(weights=False))
        return [member._replace(streams=everything) for member in drawn]

    plan: Plan = {}
    for _ in range(4):
        members = some_fleet()
        before = {
            shard: client
            for shard, client in owners(plan, shards).items()
            if client in {member.client_id for member in members}
        }
        plan = assign_sticky(members, shards, plan)
        check_tiling(plan, shards, members)
        sizes = loads(plan, shards)
        assert max(sizes) - min(sizes) <= 1
        after = owners(plan, shards)
        assert moves(before, after) == least_moves(members, before, after)


@given(fleets(), fleets(), all_shards, all_shards)
def test_sticky_tiles_after_any_plan(
    members: list[Member], others: list[Member], shards: Shards, older: Shards
) -> None:
    plan = assign_sticky(members, shards, assign_range(others, older))
    check_tiling(plan, shards, members)


@given(fleets(), fleets(weights=False), all_shards)
def test_sticky_keeps_an_even_plan(
    members: list[Member], equals: list[Member], shards: Shards
) -> None:
    plan = assign_sticky(members, shards, {})
    assert assign_sticky(members, shards, plan) == plan
    equals = [member._replace(streams=frozenset(shards)) for member in equals]
    plan = assign_range(equals, shards)
    assert assign_sticky(equals, shards, plan) == plan


def test_of_two_members_with_the_same_range_the_first_keeps_it() -> None:
    everything = (Interval("a", 0, HASH_KEYS - 1),)
    previous = {"c0000": everything, "c0001": everything}
    plan = assign_sticky(fleet(2, "a"), {"a": [0, 10]}, previous)
    assert plan["c0000"] == (Interval("a", 0, 9),)


@pytest.mark.parametrize(
    ("members", "dead", "expected"),
    [
        (3, 1, [("c0000", 6), ("c0002", 6)]),
        (4, 2, [("c0000", 4), ("c0001", 5), ("c0000", 2), ("c0003", 5)]),
        (4, 1, [("c0000", 6), ("c0003", 1), ("c0002", 5), ("c0003", 4)]),
    ],
)
def test_shards_of_a_dead_member_go_to_its_neighbours_first(
    members: int, dead: int, expected: list[tuple[str, int]]
) -> None:
    shards = {"a": even(4 * members)}
    plan = assign_range(fleet(members, "a"), shards)
    left = fleet(members, "a")
    del left[dead]
    assert assign_sticky(left, shards, plan) == runs("a", *expected)


def test_excess_comes_off_the_end_of_the_shortest_run() -> None:
    before = runs("a", ("c0000", 5), ("c0001", 2), ("c0000", 2))
    after = assign_sticky(fleet(2, "a"), {"a": even(9)}, before)
    assert after == runs("a", ("c0000", 5), ("c0001", 4))


@pytest.mark.parametrize(
    ("clients", "shards", "most_range", "most_sticky"),
    [(10, 100, 0.45, 0.10), (50, 400, 0.45, 0.021)],
)
def test_over_100_joins_and_leaves_little_moves(
    clients: int, shards: int, most_range: float, most_sticky: float
) -> None:
    keys = {"s": even(shards)}
    moved = {"range": 0, "sticky": 0}
    random = Random(1)
    ids = {f"{random.random()}" for _ in range(clients)}
    members = [Member(i, 1, frozenset("s")) for i in sorted(ids)]
    by_range = sticky = assign_range(members, keys)
    for event in range(100):
        if event % 2:
            ids.remove(random.choice(sorted(ids)))
        else:
            ids.add(f"{random.random()}")
        members = [Member(i, 1, frozenset("s")) for i in sorted(ids)]
        before, by_range = owners(by_range, keys), assign_range(members, keys)
        moved["range"] += moves(before, owners(by_range, keys))
        before, sticky = owners(sticky, keys), assign_sticky(members, keys, sticky)
        moved["sticky"] += moves(before, owners(sticky, keys))
    assert 0.25 < moved["range"] / 100 / shards < most_range
    assert moved["sticky"] / 100 / shards < most_sticky
    assert max(map(len, sticky.values())) < shards / clients + 2


def test_splits_and_merges_within_a_range_change_no_range() -> None:
    members = fleet(2, "a")
    plan = assign_sticky(members, {"a": [0, 10, 20, 30]}, {})
    split = {"a": [0, 5, 10, 20, 25, 30]}
    assert assign_sticky(members, split, plan) == plan


def test_excess_that_a_short_run_does_not_hold_comes_off_the_next_one() -> None:
    shards = {"a": even(12)}
    before = runs("a", ("c0001", 3), ("c0000", 1), ("c0001", 1), ("c0000", 7))
    after = assign_sticky(fleet(2, "a"), shards, before)
    assert loads(after, shards) == [6, 6]
    assert moves(owners(before, shards), owners(after, shards)) == 2


def test_the_heavier_member_takes_the_odd_shard() -> None:
    members = [Member("c0000", 1, frozenset("a")), Member("c0001", 2, frozenset("a"))]
    before, shards = runs("a", ("c0000", 2), ("c0001", 2)), {"a": even(4)}
    assert loads(assign_sticky(members, shards, before), shards) == [1, 3]


def test_a_chain_of_moves_counts_for_its_last_member() -> None:
    asked = {"c0000": "a", "c0001": "ab", "c0002": "b"}
    members = [Member(name, 1, frozenset(arns)) for name, arns in asked.items()]
    whole = {arn: Interval(arn, 0, HASH_KEYS - 1) for arn in "ab"}
    before: Plan = {"c0000": (whole["a"],), "c0001": (whole["b"],)}
    shards = {"a": even(6), "b": even(6)}
    assert loads(assign_sticky(members, shards, before), shards) == [4, 4, 4]
