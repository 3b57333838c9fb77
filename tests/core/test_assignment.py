"""Ranges tile the streams asked for, evenly, and move as little as they must."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import pairwise, permutations
from math import floor
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.assignment import (
    Member,
    _shares,
    assign_range,
    assign_sticky,
)
from kinesumer.model import HASH_KEYS, Interval, Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Shards = dict[str, list[int]]
    Plan = dict[str, Range]
    Owners = dict[tuple[str, int], str]


def even(count: int) -> list[int]:
    """Return the starting hash keys of a fresh stream."""
    return [n * HASH_KEYS // count for n in range(count)]


def fleet(count: int, *streams: str, weight: int = 1) -> list[Member]:
    """Return members that ask for the same."""
    return [Member(f"c{n:04}", weight, frozenset(streams)) for n in range(count)]


def owners(plan: Mapping[str, Range], shards: Mapping[str, Sequence[int]]) -> Owners:
    """Return who has each shard: in whose interval its starting hash key lies."""
    held: Owners = {}
    for client, intervals in plan.items():
        for arn, first, last in intervals:
            keys = shards.get(arn, ())
            for key in keys[bisect_left(keys, first) : bisect_right(keys, last)]:
                held[arn, key] = client
    return held


def loads(plan: Plan, shards: Shards) -> list[int]:
    """Return how many shards each client has, in order of the clients."""
    counts = Counter(owners(plan, shards).values())
    return [counts[client] for client in plan]


def check_tiling(plan: Plan, shards: Shards, members: Sequence[Member]) -> None:
    """Look that every stream asked for is tiled, by those who ask for it."""
    asked = {member.client_id: member.streams for member in members}
    pieces: dict[str, list[tuple[int, int, str]]] = {}
    for client, intervals in plan.items():
        assert list(intervals) == sorted(intervals)
        for arn, first, last in intervals:
            assert arn in asked[client]
            pieces.setdefault(arn, []).append((first, last, client))
    assert set(pieces) == set(shards) & {arn for arns in asked.values() for arn in arns}
    for found in pieces.values():
        edge = -1
        for first, last, _ in sorted(found):
            assert first == edge + 1 <= last
            edge = last
        assert edge == HASH_KEYS - 1
        clients = [client for _, _, client in sorted(found)]
        assert all(a != b for a, b in pairwise(clients))


streams = st.sampled_from(["a", "b", "c"])
starts = st.lists(st.integers(1, 60), max_size=12, unique=True).map(
    lambda keys: [0, *sorted(keys)]
)
all_shards = st.dictionaries(streams, starts, min_size=1)
lists = st.frozensets(streams)


@st.composite
def fleets(draw: st.DrawFn, weights: bool = True, most: int = 6) -> list[Member]:
    """Return members that ask for different streams, sorted by id."""
    ids = sorted(draw(st.sets(st.integers(0, 15), min_size=1, max_size=most)))
    weight = st.integers(1, 4) if weights else st.just(1)
    return [Member(f"c{n:02}", draw(weight), draw(lists)) for n in ids]


# --- range ----------------------------------------------------------------------------


def cut_as_in_go(shards: int, clients: int) -> list[int]:
    """Return how many of a stream's shards each client of Kinesumer for Go takes."""
    ratio = float(shards) / float(clients)
    cuts = [away_from_zero(float(index) * ratio) for index in range(clients + 1)]
    return [after - before for before, after in pairwise(cuts)]


def away_from_zero(value: float) -> int:
    """Round as Go's math.Round does."""
    below = floor(value)
    return below if value - below < 0.5 else below + 1


@pytest.mark.parametrize("clients", range(1, 51))
def test_shares_are_those_of_kinesumer_for_go(clients: int) -> None:
    for count in range(1, 501):
        assert _shares(count, [3] * clients) == cut_as_in_go(count, clients)


@pytest.mark.parametrize("clients", range(1, 51))
def test_a_cold_start_gives_the_ranges_of_kinesumer_for_go(clients: int) -> None:
    for count in range(1 + clients % 7, 501, 7):
        keys = even(count)
        plan = assign_range(fleet(clients, "s", weight=3), {"s": keys})
        edge = 0
        for size, range_ in zip(
            cut_as_in_go(count, clients), plan.values(), strict=True
        ):
            if size == 0:
                assert range_ == ()
                continue
            last = keys[edge + size] - 1 if edge + size < count else HASH_KEYS - 1
            assert range_ == (Interval("s", keys[edge], last),)
            edge += size
        assert edge == count


def test_where_go_rounds_otherwise_than_python_or_integers_it_is_followed() -> None:
    sizes = loads(assign_range(fleet(4, "s"), {"s": even(10)}), {"s": even(10)})
    assert sizes == [3, 2, 3, 2]


def test_one_shard_streams_are_spread_over_all_clients() -> None:
    shards = {f"s{n}": [0] for n in range(10)}
    plan = assign_range(fleet(4, *shards), shards)
    assert loads(plan, shards) == [3, 2, 3, 2]


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
def test_weights_are_kept_to_within_a_shard(
    members: list[Member], shards: Shards
) -> None:
    members = [member._replace(streams=frozenset(shards)) for member in members]
    total = sum(map(len, shards.values()))
    weight = sum(member.weight for member in members)
    sizes = loads(assign_range(members, shards), shards)
    for member, size in zip(members, sizes, strict=True):
        assert abs(size - total * member.weight / weight) <= 1


@given(fleets(), all_shards)
def test_ranges_are_contiguous_where_all_ask_for_the_same(
    members: list[Member], shards: Shards
) -> None:
    members = [member._replace(streams=frozenset(shards)) for member in members]
    held = owners(assign_range(members, shards), shards)
    laid = [held[arn, key] for arn in sorted(shards) for key in shards[arn]]
    assert laid == sorted(laid)


@given(fleets(), all_shards)
def test_streams_go_to_those_who_ask_for_them(
    members: list[Member], shards: Shards
) -> None:
    check_tiling(assign_range(members, shards), shards, members)


def test_who_asks_for_less_gets_more_of_it() -> None:
    both, one = frozenset("ab"), frozenset("a")
    members = [Member("x", 1, both), Member("y", 1, one), Member("z", 1, one)]
    shards = {"a": even(6), "b": even(3)}
    assert loads(assign_range(members, shards), shards) == [3, 3, 3]


def test_shards_are_passed_on_along_a_chain_of_members() -> None:
    members = [Member("x", 1, frozenset("a")), Member("y", 1, frozenset("ab"))]
    members.append(Member("z", 1, frozenset("bc")))
    shards = {"a": even(2), "b": even(8), "c": even(5)}
    assert loads(assign_range(members, shards), shards) == [2, 6, 7]
    members[0] = Member("x", 1, frozenset("ac"))
    assert loads(assign_range(members, shards), shards) == [5, 5, 5]


def test_nobody_is_given_nothing() -> None:
    assert assign_range([], {"a": [0]}) == {}
    assert assign_sticky([], {"a": [0]}, {}) == {}
    assert assign_range(fleet(2, "a"), {}) == {"c0000": (), "c0001": ()}
    assert assign_sticky(fleet(1, "a"), {"b": [0]}, {}) == {"c0000": ()}


def test_a_stream_whose_shards_arent_known_is_given_away_whole() -> None:
    assert assign_range(fleet(1, "a"), {"a": []}) == {
        "c0000": (Interval("a", 0, HASH_KEYS - 1),)
    }


def test_a_stream_that_doesnt_begin_at_0_is_tiled_from_0() -> None:
    first, second = assign_range(fleet(2, "a"), {"a": [5, 9]}).values()
    assert first == (Interval("a", 0, 8),)
    assert second == (Interval("a", 9, HASH_KEYS - 1),)


# --- evenness, against trying everything ----------------------------------------------


def unevenness(sizes: Sequence[int], members: Sequence[Member]) -> float:
    """Return what is least when loads are in proportion to weights."""
    return sum(n * n / m.weight for n, m in zip(sizes, members, strict=True))


def least_unevenness(members: list[Member], shards: Shards) -> float:
    """Return the least there is, over all ways to give each shard to an asker."""
    reached = {tuple(0 for _ in members)}
    for arn, keys in shards.items():
        askers = [n for n, member in enumerate(members) if arn in member.streams]
        for _ in keys if askers else ():
            reached = {
                (*loads[:n], loads[n] + 1, *loads[n + 1 :])
                for loads in reached
                for n in askers
            }
    return min(unevenness(sizes, members) for sizes in reached)


few_shards = st.dictionaries(
    streams, st.integers(1, 5).map(lambda n: list(range(n))), min_size=1
)


@given(fleets(most=4), few_shards, st.data())
def test_no_other_assignment_is_more_even(
    members: list[Member], shards: Shards, data: st.DataObject
) -> None:
    least = least_unevenness(members, shards)
    before = assign_range(data.draw(fleets(most=4)), shards)
    sticky = assign_sticky(members, shards, before)
    assert unevenness(loads(sticky, shards), members) == pytest.approx(least)
    asked = {tuple(arn in member.streams for member in members) for arn in shards}
    if len([askers for askers in asked if any(askers)]) > 1:
        plan = assign_range(members, shards)
        assert unevenness(loads(plan, shards), members) == pytest.approx(least)


# --- sticky ---------------------------------------------------------------------------


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
