"""Shards stay where they are, but for orphans and what is above a fair share."""

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
)


def moves(before: Owners, after: Owners) -> int:
    """Return how many shards have another owner, or their first."""
    return sum(before.get(shard) != client for shard, client in after.items())


def least_moves(members: list[Member], before: Owners, after: Owners) -> int:
    """Return orphans and excess: what every even plan has to move, if all ask for all.

    Tries every way to hand out the sizes; sizes alone matter, not which shards.
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
def test_sticky_tiles_whatever_was_before(
    members: list[Member], others: list[Member], shards: Shards, older: Shards
) -> None:
    plan = assign_sticky(members, shards, assign_range(others, older))
    check_tiling(plan, shards, members)


@given(fleets(), all_shards)
def test_sticky_leaves_alone_what_is_even(
    members: list[Member], shards: Shards
) -> None:
    plan = assign_sticky(members, shards, {})
    assert assign_sticky(members, shards, plan) == plan


@given(fleets(weights=False), all_shards)
def test_sticky_leaves_the_contiguous_ranges_of_a_cold_start_alone(
    members: list[Member], shards: Shards
) -> None:
    members = [member._replace(streams=frozenset(shards)) for member in members]
    plan = assign_range(members, shards)
    assert assign_sticky(members, shards, plan) == plan


def test_of_two_that_claim_the_same_the_first_keeps_it() -> None:
    everything = (Interval("a", 0, HASH_KEYS - 1),)
    previous = {"c0000": everything, "c0001": everything}
    plan = assign_sticky(fleet(2, "a"), {"a": [0, 10]}, previous)
    assert plan["c0000"] == (Interval("a", 0, 9),)


def test_what_a_dead_member_leaves_goes_to_its_neighbours() -> None:
    shards = {"a": list(range(12))}
    plan = assign_range(fleet(3, "a"), shards)
    left = [member for member in fleet(3, "a") if member.client_id != "c0001"]
    after = assign_sticky(left, shards, plan)
    assert after == {
        "c0000": (Interval("a", 0, 5),),
        "c0002": (Interval("a", 6, HASH_KEYS - 1),),
    }


def test_who_gains_takes_what_borders_on_its_own() -> None:
    shards = {"a": list(range(16))}
    plan = assign_range(fleet(4, "a"), shards)
    left = [member for member in fleet(4, "a") if member.client_id != "c0002"]
    assert assign_sticky(left, shards, plan) == {
        "c0000": (Interval("a", 0, 3), Interval("a", 9, 10)),
        "c0001": (Interval("a", 4, 8),),
        "c0003": (Interval("a", 11, HASH_KEYS - 1),),
    }
    left = [member for member in fleet(4, "a") if member.client_id != "c0001"]
    assert assign_sticky(left, shards, plan) == {
        "c0000": (Interval("a", 0, 5),),
        "c0002": (Interval("a", 7, 11),),
        "c0003": (Interval("a", 6, 6), Interval("a", 12, HASH_KEYS - 1)),
    }


def test_excess_comes_off_the_end_of_the_shortest_run() -> None:
    shards = {"a": list(range(9))}
    previous = {
        "c0000": (Interval("a", 0, 4), Interval("a", 7, HASH_KEYS - 1)),
        "c0001": (Interval("a", 5, 6),),
    }
    after = assign_sticky(fleet(2, "a"), shards, previous)
    assert after["c0000"] == (Interval("a", 0, 4),)
    assert after["c0001"] == (Interval("a", 5, HASH_KEYS - 1),)


@pytest.mark.parametrize(
    ("clients", "shards", "most_range", "most_sticky"),
    [(10, 100, 0.45, 0.10), (100, 1000, 0.40, 0.0101)],
)
def test_over_200_joins_and_leaves_little_moves(
    clients: int, shards: int, most_range: float, most_sticky: float
) -> None:
    keys = {"s": even(shards)}
    moved = {"range": 0, "sticky": 0}
    random = Random(1)
    ids = {f"{random.random()}" for _ in range(clients)}
    members = [Member(i, 1, frozenset("s")) for i in sorted(ids)]
    by_range = sticky = assign_range(members, keys)
    for event in range(200):
        if event % 2:
            ids.remove(random.choice(sorted(ids)))
        else:
            ids.add(f"{random.random()}")
        members = [Member(i, 1, frozenset("s")) for i in sorted(ids)]
        before, by_range = owners(by_range, keys), assign_range(members, keys)
        moved["range"] += moves(before, owners(by_range, keys))
        before, sticky = owners(sticky, keys), assign_sticky(members, keys, sticky)
        moved["sticky"] += moves(before, owners(sticky, keys))
    assert 0.25 < moved["range"] / 200 / shards < most_range
    assert moved["sticky"] / 200 / shards < most_sticky
    assert max(map(len, sticky.values())) < shards / clients + 2


def test_splits_and_merges_within_a_range_change_nobodys() -> None:
    members = fleet(2, "a")
    plan = assign_sticky(members, {"a": [0, 10, 20, 30]}, {})
    split = {"a": [0, 5, 10, 20, 25, 30]}
    assert assign_sticky(members, split, plan) == plan


def runs(*lengths: tuple[str, int]) -> Plan:
    """Return a plan for stream "a" of runs of shards, as many as all lengths."""
    starts = even(sum(length for _, length in lengths))
    plan: Plan = {}
    place = 0
    for client, length in lengths:
        first, place = starts[place], place + length
        last = starts[place] - 1 if place < len(starts) else HASH_KEYS - 1
        plan[client] = (*plan.get(client, ()), Interval("a", first, last))
    return plan


def test_excess_that_a_short_run_does_not_hold_comes_off_the_next_one() -> None:
    shards = {"a": even(12)}
    before = runs(("c0001", 3), ("c0000", 1), ("c0001", 1), ("c0000", 7))
    after = assign_sticky(fleet(2, "a"), shards, before)
    assert loads(after, shards) == [6, 6]
    assert moves(owners(before, shards), owners(after, shards)) == 2


def test_who_weighs_twice_as_much_takes_the_odd_shard() -> None:
    members = [Member("c0000", 1, frozenset("a")), Member("c0001", 2, frozenset("a"))]
    before, shards = runs(("c0000", 2), ("c0001", 2)), {"a": even(4)}
    assert loads(assign_sticky(members, shards, before), shards) == [1, 3]


def test_what_is_passed_on_along_a_chain_counts_for_its_last_member() -> None:
    asked = {"c0000": "a", "c0001": "ab", "c0002": "b"}
    members = [Member(name, 1, frozenset(arns)) for name, arns in asked.items()]
    whole = {arn: Interval(arn, 0, HASH_KEYS - 1) for arn in "ab"}
    before: Plan = {"c0000": (whole["a"],), "c0001": (whole["b"],)}
    shards = {"a": even(6), "b": even(6)}
    assert loads(assign_sticky(members, shards, before), shards) == [4, 4, 4]
