"""Fleets and streams for the assignors, and what to look at in a plan."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from kinesumer.core.assignment import Member
from kinesumer.model.streams import HASH_KEYS, Range

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


def unevenness(sizes: Sequence[int], members: Sequence[Member]) -> Fraction:
    """Return what is least when loads are in proportion to weights."""
    pairs = zip(sizes, members, strict=True)
    return sum((Fraction(n * n, m.weight) for n, m in pairs), Fraction(0))


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
def fleets(
    draw: st.DrawFn, weights: bool = True, most: int = 6, labels: str = ""
) -> list[Member]:
    """Return members that ask for different streams, sorted by id."""
    ids = sorted(draw(st.sets(st.integers(0, 15), min_size=1, max_size=most)))
    weight = st.integers(1, 4) if weights else st.just(1)
    label = st.sampled_from(["", *labels])
    return [Member(f"c{n:02}", draw(weight), draw(lists), draw(label)) for n in ids]
