"""Create fleets, streams and loads for the tests of assignors, and check plans."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise

from hypothesis import strategies as st

from kinesumer.core.assignment import Member
from kinesumer.core.load import report_loads
from kinesumer.model.reports import Load
from kinesumer.model.streams import HASH_KEYS, Interval, Range, ShardKey
from kinesumer.testing.embedded_aws.state import MAX_ENTRIES
from kinesumer.wire.reports import load_text

Shards = dict[str, list[int]]
Plan = dict[str, Range]
Owners = dict[tuple[str, int], str]


def even(count: int) -> list[int]:
    """Return the starting hash keys of a stream with ``count`` equal shards."""
    return [n * HASH_KEYS // count for n in range(count)]


def fleet(count: int, *streams: str, weight: int = 1) -> list[Member]:
    """Return members that request the same streams."""
    return [Member(f"c{n:04}", weight, frozenset(streams)) for n in range(count)]


def owners(plan: Mapping[str, Range], shards: Mapping[str, Sequence[int]]) -> Owners:
    """Return the owner of each shard, by the shard's stream and starting hash key."""
    held: Owners = {}
    for client, intervals in plan.items():
        for arn, first, last in intervals:
            keys = shards.get(arn, ())
            for key in keys[bisect_left(keys, first) : bisect_right(keys, last)]:
                held[arn, key] = client
    return held


def loads(plan: Plan, shards: Shards) -> list[int]:
    """Return the number of shards of each client, in order of the clients."""
    counts = Counter(owners(plan, shards).values())
    return [counts[client] for client in plan]


def runs(arn: str, *lengths: tuple[str, int]) -> Plan:
    """Return a plan in which each client gets the given number of adjacent shards."""
    starts = even(sum(length for _, length in lengths))
    plan: Plan = {}
    place = 0
    for client, length in lengths:
        first, place = starts[place], place + length
        last = starts[place] - 1 if place < len(starts) else HASH_KEYS - 1
        plan[client] = (*plan.get(client, ()), Interval(arn, first, last))
    return plan


def unevenness(sizes: Sequence[int], members: Sequence[Member]) -> Fraction:
    """Return a measure of imbalance, smallest for loads in proportion to weights."""
    pairs = zip(sizes, members, strict=True)
    return sum((Fraction(n * n, m.weight) for n, m in pairs), Fraction(0))


def check_tiling(plan: Plan, shards: Shards, members: Sequence[Member]) -> None:
    """Check that members' ranges cover each requested stream without overlaps."""
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


def check_shares_in_order(
    members: Sequence[Member], plan: Plan, shards: Shards
) -> None:
    """Check that ranges are contiguous, and at most one shard off the fair share."""
    held = owners(plan, shards)
    laid = [held[arn, key] for arn in sorted(shards) for key in shards[arn]]
    assert laid == sorted(laid)
    whole = sum(member.weight for member in members)
    for member, size in zip(members, loads(plan, shards), strict=True):
        assert abs(size - Fraction(len(laid) * member.weight, whole)) <= 1


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
    """Return members that request different streams, sorted by id."""
    ids = sorted(draw(st.sets(st.integers(0, 15), min_size=1, max_size=most)))
    weight = st.integers(1, 4) if weights else st.just(1)
    label = st.sampled_from(["", *labels])
    return [Member(f"c{n:02}", draw(weight), draw(lists), draw(label)) for n in ids]


def stored_loads(
    loads: Mapping[tuple[ShardKey, int], Load],
    streams: frozenset[str],
    most: int = MAX_ENTRIES,
) -> str:
    """Return the text of the loads of shards, by key and starting hash key."""
    return load_text(report_loads(loads, most), streams)
