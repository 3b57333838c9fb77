"""Test that plans and claims keep to ``max_shards``, and leave no shard needlessly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core import plan as plans
from kinesumer.core.assignment import Member, assign_range
from kinesumer.core.claims import Pauses, decide_claims
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
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
)

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
limits = st.none() | st.integers(1, 6)


@st.composite
def limited(draw: st.DrawFn, labels: str = "") -> list[Member]:
    """Return members of which some have ``max_shards``."""
    members = draw(fleets(labels=labels))
    return [member._replace(max_shards=draw(limits)) for member in members]


def requested(members: Sequence[Member], shards: Shards) -> Shards:
    """Return the streams that members request."""
    asked = frozenset[str]().union(*(member.streams for member in members))
    return {arn: keys for arn, keys in shards.items() if arn in asked}


def check_limits(members: Sequence[Member], plan: Plan, shards: Shards) -> None:
    """Check that no member exceeds its limit, and that no range overlaps another."""
    sizes = loads(plan, shards)
    for member, size in zip(members, sizes, strict=True):
        assert member.max_shards is None or size <= member.max_shards
    if sum(sizes) == sum(map(len, requested(members, shards).values())):
        check_tiling(plan, shards, members)


@given(limited("xy"), all_shards)
def test_a_range_has_max_shards_at_most(members: list[Member], shards: Shards) -> None:
    check_limits(members, assign_range(members, shards), shards)


@given(limited("xy"), all_shards)
def test_no_shard_is_left_that_a_limit_permits(
    members: list[Member], shards: Shards
) -> None:
    members = [m._replace(streams=frozenset(shards)) for m in members]
    plan = assign_range(members, shards)
    slots = sum(map(len, shards.values()))
    limits = [slots if m.max_shards is None else m.max_shards for m in members]
    assert sum(loads(plan, shards)) == min(slots, sum(limits))


@given(fleets(labels="xy"), all_shards, st.data())
def test_limits_that_are_high_enough_change_nothing(
    members: list[Member], shards: Shards, data: st.DataObject
) -> None:
    ample = [m._replace(max_shards=data.draw(st.none() | st.just(99))) for m in members]
    assert assign_range(ample, shards) == assign_range(members, shards)


def test_the_others_share_what_a_limit_leaves() -> None:
    members = fleet(3, "a")
    members[1] = members[1]._replace(max_shards=2)
    plan = assign_range(members, {"a": even(12)})
    assert loads(plan, {"a": even(12)}) == [5, 2, 5]


def test_shards_beyond_all_limits_belong_to_no_range() -> None:
    members = [m._replace(max_shards=2) for m in fleet(2, "a")]
    shards = {"a": even(6)}
    held = owners(assign_range(members, shards), shards)
    assert [held.get(("a", key)) for key in even(6)] == [
        *["c0000"] * 2,
        *["c0001"] * 2,
        *[None] * 2,
    ]


def test_of_nested_requests_no_shard_is_left_that_a_limit_permits() -> None:
    """A stream is added while clients are replaced one after the other."""
    old, new = frozenset({"a"}), frozenset({"a", "b"})
    members = [Member(f"c{n}", 1, [old, new][n % 2], max_shards=3) for n in range(6)]
    for count in range(1, 10):
        shards = {"a": even(18 - count), "b": even(count)}
        assert loads(assign_range(members, shards), shards) == [3] * 6


# --- when to plan, and what to claim ---


def rows(*limits: int | None) -> list[MemberRow]:
    """Return members that request one stream."""
    return [
        MemberRow(f"c{n}", f"s{n}", streams=frozenset({ARN}), max_shards=limit)
        for n, limit in enumerate(limits)
    ]


def drifted(before: int, after: int, *limits: int | None) -> bool:
    """Return whether a plan for ``before`` shards has drifted at ``after``."""
    members = rows(*limits)
    cut = [HASH_KEYS // 2 + n for n in range(after - 2)]
    old, new = ({ARN: sorted([*even(2), *cut])[:size]} for size in (before, after))
    plan, other = (
        plans.make_plan(members, shards, "range", frozenset()) for shards in (old, new)
    )
    return plans.has_drifted(plan, new, other, members)


def test_a_client_with_more_than_its_limit_is_a_drift() -> None:
    assert drifted(2, 3, None, 1)
    assert not drifted(2, 3, None, None)
    assert not drifted(2, 3, None, 2)


def test_shards_that_a_client_has_room_for_are_a_drift() -> None:
    members = rows(3, 3)
    shards = {ARN: even(6)}
    full = plans.make_plan(members, shards, "range", frozenset())
    gap = full | {"c1": full["c1"]._replace(range=())}
    assert plans.has_drifted(gap, shards, full, members)
    assert not plans.has_drifted(full, shards, full, members)


def shard_rows(*names: str) -> list[ShardRow]:
    """Return free shards that are ready."""
    return [
        ShardRow(ShardKey(ARN, name), n, n, Start.TRIM_HORIZON, ready=True)
        for n, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("room", "expected"),
    [(9, "abc"), (3, "abc"), (2, "ca"), (1, "c"), (0, ""), (-1, "")],
)
def test_a_session_claims_as_many_shards_as_it_has_room_for(
    room: int, expected: str
) -> None:
    stored = shard_rows("a", "b", "c")
    # This session owns c already, but doesn't read it.
    stored[2] = stored[2]._replace(owner="mine")
    found = decide_claims(stored, (), (), "mine", Pauses(), room)
    assert "".join(row.key.shard_id for row in found.claim) == expected
    assert found.pending == stored


def test_a_shard_that_must_be_released_takes_room() -> None:
    stored = shard_rows("a", "b")
    stored[1] = stored[1]._replace(owner="mine", paused=True)
    found = decide_claims(stored, (), (), "mine", Pauses(), 1)
    assert (found.claim, found.stale) == ([], [stored[1]])


@given(limited(), all_shards)
def test_a_plan_that_keeps_to_limits_has_not_drifted(
    members: list[Member], shards: Shards
) -> None:
    stored = [
        MemberRow(row.client_id, "s", streams=row.streams)._replace(
            weight=row.weight, max_shards=row.max_shards
        )
        for row in members
    ]
    plan = plans.make_plan(stored, shards, "range", frozenset())
    assert not plans.has_drifted(plan, shards, plan, stored)
