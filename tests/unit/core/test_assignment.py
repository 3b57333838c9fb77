"""Ranges tile the streams asked for, evenly, and are those of Kinesumer for Go."""

from __future__ import annotations

from itertools import pairwise
from math import floor
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.assignment import Member, assign_range, assign_sticky
from kinesumer.core.balance import shares
from kinesumer.model.streams import HASH_KEYS, Interval
from tests.unit.core.shares import (
    Shards,
    all_shards,
    check_tiling,
    even,
    fleet,
    fleets,
    loads,
    owners,
    streams,
    unevenness,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        assert shares(count, [3] * clients) == cut_as_in_go(count, clients)


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


def all_loads(members: Sequence[Member], shards: Shards) -> set[tuple[int, ...]]:
    """Return the loads of every way to give each shard to one who asks for it."""
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


@given(fleets(most=4), few_shards, st.data())
def test_no_other_assignment_is_more_even(
    members: list[Member], shards: Shards, data: st.DataObject
) -> None:
    least = min(unevenness(sizes, members) for sizes in all_loads(members, shards))
    before = assign_range(data.draw(fleets(most=4)), shards)
    sticky = assign_sticky(members, shards, before)
    assert unevenness(loads(sticky, shards), members) == least
    asked = {tuple(arn in member.streams for member in members) for arn in shards}
    if len([askers for askers in asked if any(askers)]) > 1:
        plan = assign_range(members, shards)
        assert unevenness(loads(plan, shards), members) == least
