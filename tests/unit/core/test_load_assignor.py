"""Test that contiguous ranges have equal work, and that little moves."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.assignment import Member, assign_range
from kinesumer.core.load_assignor import assign_load
from tests.support.shares import (
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

Work = dict[str, list[int]]


@st.composite
def works(draw: st.DrawFn, shards: Shards) -> Work:
    """Return the work of each shard, mostly small numbers."""
    size = st.integers(1, 9) | st.integers(1, 1000)
    return {arn: [draw(size) for _ in keys] for arn, keys in shards.items()}


def totals(plan: Plan, shards: Shards, work: Work) -> dict[str, int]:
    """Return the work of each client."""
    found = dict.fromkeys(plan, 0)
    for client, intervals in plan.items():
        for arn, first, last in intervals:
            keys = shards[arn]
            found[client] += sum(
                work[arn][bisect_left(keys, first) : bisect_right(keys, last)]
            )
    return found


def check_contiguous(
    plan: Mapping[str, object], members: Sequence[Member], shards: Shards
) -> None:
    """Check that each member's shards are successive ones of the streams together."""
    held = owners(plan, shards)  # type: ignore[arg-type]
    laid = [held[arn, key] for arn in sorted(shards) for key in shards[arn]]
    seen = [client for at, client in enumerate(laid) if laid[at - 1 : at] != [client]]
    assert len(seen) == len({*seen})


def planned(
    members: Sequence[Member],
    shards: Shards,
    work: Mapping[str, Sequence[int]],
    previous: Plan,
    *,
    is_known: bool = True,
) -> Plan:
    """Return the plan without its verdicts."""
    plan, _ = assign_load(members, shards, work, previous, is_known=is_known)
    return plan


def one(count: int, *sizes: int) -> tuple[Shards, Work]:
    """Return a stream, whose first shards have this work and the others 10."""
    return {"a": even(count)}, {"a": [*sizes, *[10] * (count - len(sizes))]}


def hot(place: int) -> list[int]:
    """Return the work of nine shards, of which one is hot."""
    return [500 if at == place else 50 for at in range(9)]


@given(fleets(labels="xy"), all_shards, st.data())
def test_every_stream_is_tiled_and_a_plan_is_kept(
    members: list[Member], shards: Shards, data: st.DataObject
) -> None:
    work = data.draw(works(shards))
    previous: Plan = {}
    for is_known in (True, data.draw(st.booleans()), True):
        plan = planned(members, shards, work, previous, is_known=is_known)
        check_tiling(plan, shards, members)
        previous = plan


@given(fleets(labels="xy"), fleets(labels="xy"), all_shards, st.data())
def test_limits_are_kept_after_any_plan(
    before: list[Member], members: list[Member], shards: Shards, data: st.DataObject
) -> None:
    work = data.draw(works(shards))
    previous = assign_range(before, shards)
    members = [
        m._replace(max_shards=data.draw(st.none() | st.integers(1, 4))) for m in members
    ]
    plan = planned(members, shards, work, previous)
    for member, size in zip(members, loads(plan, shards), strict=True):
        assert member.max_shards is None or size <= member.max_shards


@given(st.integers(1, 8), st.integers(0, 8), all_shards, st.data())
def test_ranges_are_contiguous_and_no_further_plan_moves_more(
    count: int, joining: int, shards: Shards, data: st.DataObject
) -> None:
    work = data.draw(works(shards))
    members = fleet(count + joining, *shards)
    plan = planned(members[joining:], shards, work, {})
    check_contiguous(plan, members, shards)
    plan = planned(members, shards, work, plan)
    check_contiguous(plan, members, shards)
    for _ in range(3):
        plan, last = planned(members, shards, work, plan), plan
    assert plan == last


@given(st.integers(1, 8), st.integers(1, 40), st.data())
def test_no_member_has_much_more_than_its_share_and_a_shard(
    count: int, size: int, data: st.DataObject
) -> None:
    shards = {"a": even(size)}
    work = data.draw(works(shards))
    members = fleet(count, "a")
    plan = planned(members, shards, work, assign_range(members, shards))
    share = sum(work["a"]) / count
    for client, total in totals(plan, shards, work).items():
        held = [
            key for (_, key), owner in owners(plan, shards).items() if owner == client
        ]
        if len(held) > 1:
            assert total <= 1.12 * share + 1.03 * max(work["a"]) + 1


@pytest.mark.parametrize(
    ("weights", "sizes", "expected"),
    [
        ((1, 1, 1), [10] * 12, [4, 4, 4]),
        ((1, 2, 1), [10] * 12, [3, 6, 3]),
        ((1, 1), [50, 50, *[10] * 9], [2, 9]),  # busy shards make short ranges
    ],
)
def test_work_is_cut_by_weight(
    weights: tuple[int, ...], sizes: list[int], expected: list[int]
) -> None:
    shards = {"a": even(len(sizes))}
    clients = fleet(len(weights), "a")
    members = [m._replace(weight=w) for m, w in zip(clients, weights, strict=True)]
    assert loads(planned(members, shards, {"a": sizes}, {}), shards) == expected


def test_a_hot_shard_has_a_client_of_its_own_and_the_others_share_the_rest() -> None:
    shards, work = one(13, 1000)
    plan = planned(fleet(4, "a"), shards, work, assign_range(fleet(4, "a"), shards))
    assert sorted(loads(plan, shards))[0] == 1
    assert planned(fleet(4, "a"), shards, work, plan) == plan
    # The hot shard becomes even hotter, then half as hot: nothing moves.
    for size in (3000, 500):
        assert planned(fleet(4, "a"), shards, one(13, size)[1], plan) == plan


@pytest.mark.parametrize(
    ("held", "work", "expected"),
    [
        # the example of the module
        ((4, 4), [15, *[10] * 7], [4, 4]),
        ((4, 4), [24, *[10] * 7], [3, 5]),
        # a client has 112 % of its share, or more
        ((10, 10), [*[120] * 10, *[100] * 10], [10, 10]),
        ((10, 10), [*[130] * 10, *[100] * 10], [9, 11]),
        # a gain of one percent moves a shard
        ((3, 2), [60, 60, 4, 44, 44], [2, 3]),
        ((3, 2), [60, 60, 1, 44, 44], [3, 2]),
        # more must be gained if more shards move
        ((3, 1), [300, 300, 50, 500], [2, 2]),
        ((52, 1), [300, 300, *[1] * 50, 500], [52, 1]),
        # clients beside a hot shard are even if the order permits
        ((3, 3, 3), hot(0), [1, 4, 4]),
        ((3, 3, 3), hot(8), [4, 4, 1]),
        ((3, 3, 3), hot(4), [4, 1, 4]),
        ((3, 3, 3), hot(3), [3, 1, 5]),
        ((3, 3, 3), hot(2), [2, 1, 6]),
    ],
)
def test_shards_move_if_that_is_worth_it_and_then_stay(
    held: tuple[int, ...], work: list[int], expected: list[int]
) -> None:
    members, shards = fleet(len(held), "a"), {"a": even(len(work))}
    ids = (member.client_id for member in members)
    previous = runs("a", *zip(ids, held, strict=True))
    plan = planned(members, shards, {"a": work}, previous)
    assert loads(plan, shards) == expected
    assert planned(members, shards, {"a": work}, plan) == plan


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_thirty_percent_moves_nothing(seed: int) -> None:
    draw = random.Random(seed)
    shards = {"a": even(200)}
    members = fleet(10, "a")
    plan = planned(members, shards, {"a": [1000] * 200}, {})
    for _ in range(50):
        # Averages over the smoothing time, which is as long as some heartbeats.
        noise = [sum(draw.uniform(0.7, 1.3) for _ in range(8)) / 8 for _ in range(200)]
        work = {"a": [round(1000 * size) for size in noise]}
        assert planned(members, shards, work, plan) == plan


def test_only_as_many_shards_move_as_the_share_needs() -> None:
    members = fleet(4, "a")
    shards, _ = one(40)
    plan = planned(members, shards, {"a": [100] * 40}, {})
    work = {"a": [150] * 10 + [100] * 30}
    after = owners(planned(members, shards, work, plan), shards)
    moved = sum(after[slot] != client for slot, client in owners(plan, shards).items())
    assert 1 <= moved <= 6


@pytest.mark.parametrize("others", [1, 19])
def test_a_client_that_joins_takes_half_of_the_busiest(others: int) -> None:
    members = fleet(others + 1, "a")
    shards, _ = one(20 * others)
    work = {"a": [10] * 20 * others}
    before = planned(members[1:], shards, work, {})
    plan = planned(members, shards, work, before)
    assert loads(plan, shards)[0] >= 10
    if others == 19:  # the others have less than 112 % of their share
        kept = [c for c in before if before[c] == plan[c]]
        assert len(kept) == 18


def test_the_successor_of_a_client_takes_exactly_its_range() -> None:
    shards, work = one(30, 70, 5, 5, 90)
    members = fleet(5, "a")
    plan = planned(members, shards, work, {})
    successor = [*members[:2], *members[3:], Member("new", 1, frozenset("a"))]
    after = planned(successor, shards, work, plan)
    assert after.pop("new") == plan["c0002"]
    assert all(after[client] == plan[client] for client in after)


def test_neighbours_share_the_range_of_a_client_that_leaves() -> None:
    shards, work = one(40)
    members = fleet(20, "a")
    plan = planned(members, shards, work, {})
    after = planned([*members[:5], *members[6:]], shards, work, plan)
    changed = [client for client in after if after[client] != plan[client]]
    assert changed == ["c0004", "c0006"]


def test_unknown_work_moves_only_what_has_no_client() -> None:
    shards, work = one(20, *[500] * 5)
    members = fleet(4, "a")
    plan = planned(members, shards, {"a": [10] * 20}, {})
    kept = planned(members, shards, work, plan, is_known=False)
    assert kept == plan
    assert planned(members, shards, work, plan) != plan
    after = planned(members[1:], shards, work, plan, is_known=False)
    check_tiling(after, shards, members[1:])


def test_clients_without_a_shard_take_none_from_clients_with_one() -> None:
    shards, work = one(3)
    plan = planned(fleet(3, "a"), shards, work, {})
    after = planned(fleet(6, "a"), shards, work, plan)
    assert loads(after, shards) == [1, 1, 1, 0, 0, 0]


def test_the_work_of_other_streams_counts() -> None:
    members = [
        Member("c1", 1, frozenset("a")),
        Member("c2", 1, frozenset({"a", "b"})),
    ]
    shards = {"a": even(10), "b": even(4)}
    work = {"a": [10] * 10, "b": [10] * 4}
    plan = planned(members, shards, work, {})
    assert totals(plan, shards, work) == {"c1": 70, "c2": 70}


@pytest.mark.parametrize("hot", [10, 200])
def test_each_label_has_its_share_of_the_work(hot: int) -> None:
    members = [m._replace(label="xy"[n % 2]) for n, m in enumerate(fleet(6, "a"))]
    shards, work = one(60, hot)
    plan = planned(members, shards, work, {})
    shares = Counter[str]()
    for member, total in zip(members, totals(plan, shards, work).values(), strict=True):
        shares[member.label] += total
    assert max(shares.values()) <= 1.05 * shares.total() / 2 + 10


def test_max_shards_limit_a_range_whatever_its_work() -> None:
    shards, work = one(12, *[100] * 6)
    members = fleet(3, "a")
    members[2] = members[2]._replace(max_shards=3)
    plan = planned(members, shards, work, {})
    assert loads(plan, shards)[2] <= 3
    full = [m._replace(max_shards=3) for m in members]
    assert loads(planned(full, shards, work, plan), shards) == [3, 3, 3]
    fewer = [members[0]._replace(max_shards=3), *fleet(3, "a")[1:]]
    before = assign_range(fleet(3, "a"), shards)
    assert loads(planned(fewer, shards, work, before, is_known=False), shards)[0] == 3


def test_an_empty_stream_and_an_empty_group_are_planned() -> None:
    assert planned([], {"a": even(2)}, {"a": [1, 1]}, {}) == {}
    plan = planned(fleet(2, "a"), {"a": []}, {"a": []}, {})
    check_tiling(plan, {"a": [0]}, fleet(2, "a"))


def test_ten_thousand_unequal_shards_are_balanced() -> None:
    draw = random.Random(1)
    sizes = [10**7 // rank for rank in range(1, 10_001)]
    draw.shuffle(sizes)
    shards, members = {"a": even(10_000)}, fleet(200, "a")
    plan = planned(members, shards, {"a": sizes}, {})
    shares = totals(plan, shards, {"a": sizes})
    several = [c for c, n in zip(plan, loads(plan, shards), strict=True) if n > 1]
    assert max(shares[c] for c in several) <= 1.15 * sum(sizes) / 200


def test_of_several_runs_a_member_keeps_the_longest() -> None:
    shards, work = one(10)
    previous = runs("a", ("c0000", 3), ("c0001", 5), ("c0000", 2))
    after = planned(fleet(2, "a"), shards, work, previous)
    assert loads(after, shards) in ([3, 7], [5, 5])
    assert owners(after, shards)["a", 0] == "c0000"


def test_of_two_members_with_the_same_range_the_first_keeps_it() -> None:
    shards, work = one(4)
    (everything,) = runs("a", ("c0000", 4)).values()
    previous = {"c0000": everything, "c0001": everything}
    after = planned(fleet(2, "a"), shards, work, previous)
    assert owners(after, shards)["a", 0] == "c0000"
    alone = {"c0000": everything, "c0001": ()}
    assert after == planned(fleet(2, "a"), shards, work, alone)
