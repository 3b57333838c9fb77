"""Test the leader's plan: which members get shards, and when it must change."""

from __future__ import annotations

from typing import Any

import pytest

from kinesumer.core import plan
from kinesumer.core.plan import Assignment, Change
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval

A, B = (f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}" for name in "ab")
BOTH = frozenset({A, B})
NONE = frozenset[str]()
HALF, LAST = HASH_KEYS // 2, HASH_KEYS - 1
FOUR = {A: [n * HASH_KEYS // 4 for n in range(4)]}


def member(client_id: str, **changes: Any) -> MemberRow:
    made = MemberRow(client_id, f"session of {client_id}", streams=frozenset({A}))
    return made._replace(**changes)


def group(count: int, **changes: Any) -> list[MemberRow]:
    return [member(f"c{n}", **changes) for n in range(count)]


def members_of(
    given: plan.Plan, members: list[MemberRow], **changes: Any
) -> list[MemberRow]:
    """Return members whose rows agree with the plan."""
    return [
        m._replace(
            range=given[m.client_id].range,
            index=given[m.client_id].index,
            syncs=given[m.client_id].syncs,
            **changes,
        )
        for m in members
    ]


def ids(members: list[MemberRow]) -> str:
    return " ".join(m.client_id for m in members)


def test_live_clients_take_part_in_plans_in_order_of_id() -> None:
    c2, c1, dead = member("c2"), member("c1"), member("c0", dead=True)
    query, later = member("c3", kind="query"), member("c4", kind="archiver")
    assert plan.live_clients([query, c2, dead, c1, later]) == [c1, c2]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("up up up", "c0 c1 c2"),
        ("up leaving up", "c0 c2"),
        ("up degraded up", "c0 c2"),
        ("up degraded degraded", "c0 c1 c2"),
        ("up degraded", "c0"),
        ("up missing up", "c0 c2"),
        ("degraded missing", "c0 c1"),
        ("degraded degraded", "c0 c1"),
        ("leaving leaving", ""),
        ("up degraded leaving", "c0"),
        ("drained up missing", "c1"),
        ("drained", ""),
    ],
)
def test_departing_members_get_no_shards_and_unhealthy_ones_only_if_most_are(
    states: str, expected: str
) -> None:
    assert ids(plan.assignable(in_states(states))) == expected


def in_states(states: str) -> list[MemberRow]:
    return [
        member(f"c{n}", drained=True) if s == "drained" else member(f"c{n}", state=s)
        for n, s in enumerate(states.split())
    ]


def test_a_plan_tiles_every_stream_in_order_of_index() -> None:
    made = plan.make_plan(group(2), FOUR, "range", frozenset({A}))
    assert made == {
        "c0": Assignment(0, (Interval(A, 0, HALF - 1),), frozenset()),
        "c1": Assignment(1, (Interval(A, HALF, LAST),), frozenset()),
    }


def test_the_assignor_range_moves_shards_of_others() -> None:
    first = plan.make_plan(group(3), FOUR, "range", frozenset({A}))
    staying = members_of(first, group(3))[1:]
    contiguous = plan.make_plan(staying, FOUR, "range", frozenset({A}))
    assert plan.moves_any(contiguous, staying)


def test_the_assignor_by_load_gives_a_busy_shard_fewer_neighbours() -> None:
    work = plan.Work({A: [9, 1, 1, 1]}, is_known=True)
    made = plan.make_plan(group(2), FOUR, "load", frozenset({A}), work)
    assert plan.shares(made, FOUR) == {"c0": 1, "c1": 3}
    members = members_of(made, group(2))
    unknown = plan.Work({A: [1, 1, 1, 1]}, is_known=False)
    assert plan.make_plan(members, FOUR, "load", frozenset({A}), unknown) == made


def test_a_departing_member_keeps_an_index_but_no_range() -> None:
    members = [member("c0", state="leaving"), member("c1")]
    made = plan.make_plan(members, FOUR, "range", frozenset({A}))
    assert made["c0"] == Assignment(0, (), frozenset())
    assert made["c1"].range == (Interval(A, 0, LAST),)


@pytest.mark.parametrize(
    ("synced_by_leader", "expected"),
    [({A}, ["", "b", ""]), ({A, B}, ["", "", ""]), ((), ["a", "b", ""])],
)
def test_the_first_member_of_a_stream_syncs_it_if_the_leader_cannot(
    synced_by_leader: set[str], expected: list[str]
) -> None:
    members = [member("c0"), member("c1", streams=BOTH), member("c2", streams=BOTH)]
    streams = {**FOUR, B: [0]}
    made = plan.make_plan(members, streams, "range", frozenset(synced_by_leader))
    assert [
        "".join(arn[-1] for arn in part.syncs) for part in made.values()
    ] == expected


def test_only_members_whose_assignment_changed_are_written() -> None:
    members = group(3)
    made = plan.make_plan(members, FOUR, "range", frozenset({A}))
    same = members_of(made, members)
    assert plan.to_assign(made, same) == []
    assert plan.to_assign(made, [*same, member("new")]) == []
    same[1] = same[1]._replace(range=())
    assert plan.to_assign(made, same) == [same[1]]
    # A row that no longer requests the stream isn't written: it needs a new plan.
    other_streams = same[1]._replace(streams=frozenset({B}))
    assert plan.to_assign(made, [same[0], other_streams]) == []


@pytest.mark.parametrize(
    "changes", [{"range": None}, {"syncs": BOTH}, {"syncs": NONE}, {"index": None}]
)
def test_each_part_of_an_assignment_counts(changes: dict[str, Any]) -> None:
    made = plan.make_plan(group(1), FOUR, "range", NONE)
    (planned,) = members_of(made, group(1))
    other = planned._replace(**changes)
    assert plan.to_assign(made, [other]) == [other]


@pytest.mark.parametrize(
    ("before", "now", "written"),
    [(0, 1, True), (2, 3, True), (3, 2, True), (3, 4, False), (7, 5, False)],
)
def test_an_index_is_written_only_for_standbys(
    before: int, now: int, written: bool
) -> None:
    planned = member("c", index=before, range=())
    made = {"c": Assignment(now, (), frozenset())}
    assert bool(plan.to_assign(made, [planned])) is written


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, group(2), Change(joined=False, other=True)),
        (
            group(2),
            group(2, beat=99, range=(), index=1, clients=2, leader_epoch=3),
            Change(joined=False, other=False),
        ),
        (group(2), group(3), Change(joined=True, other=False)),
        (group(3), group(2), Change(joined=False, other=True)),
        (group(3), [*group(2), member("c9")], Change(joined=True, other=True)),
        *(
            (group(1), group(1, **changes), Change(joined=False, other=True))
            for changes in (
                {"state": "leaving"},
                {"weight": 2},
                {"streams": BOTH},
                {"drained": True},
                {"label": "another zone"},
                {"max_shards": 4},
            )
        ),
    ],
)
def test_joins_are_distinguished_from_other_changes(
    before: list[MemberRow] | None, after: list[MemberRow], expected: Change
) -> None:
    assert plan.change(before, after) == expected


def test_shares_count_the_shards_that_start_in_a_range() -> None:
    made = plan.make_plan(group(3), FOUR, "range", frozenset({A}))
    assert plan.shares(made, FOUR) == {"c0": 1, "c1": 2, "c2": 1}
    assert plan.shares(made, {}) == {"c0": 0, "c1": 0, "c2": 0}


def two_halves(low: int, high: int) -> dict[str, list[int]]:
    """Return shards, ``low`` of them in the lower half of the hash space."""
    return {A: [*range(low), *range(HALF, HALF + high)]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((1, 1), (2, 1), False),
        ((1, 1), (3, 1), False),
        ((1, 1), (5, 1), True),
        ((50, 50), (60, 50), False),
        ((20, 20), (22, 18), False),
        ((50, 50), (62, 50), True),
    ],
)
def test_shares_drift_by_more_than_a_shard_and_a_tenth(
    before: tuple[int, int], after: tuple[int, int], *, expected: bool
) -> None:
    shards = two_halves(*after)
    old, new = (
        plan.make_plan(group(2), s, "range", frozenset({A}))
        for s in (two_halves(*before), shards)
    )
    assert plan.has_drifted(old, shards, new, group(2)) is expected


@pytest.mark.parametrize(("count", "is_drift"), [(1, False), (2, True)])
def test_a_member_without_an_assignment_has_no_share(
    count: int, *, is_drift: bool
) -> None:
    shards = {A: list(range(count))}
    made = plan.make_plan([member("new")], shards, "range", NONE)
    assert plan.has_drifted({}, shards, made, [member("new")]) is is_drift


def test_a_label_that_drifts_is_a_drift_though_no_client_is() -> None:
    members = [member(f"c{n:02}", label="ab"[n % 2]) for n in range(20)]
    before = {A: [n * HASH_KEYS // 40 for n in range(40)]}
    old = plan.make_plan(members, before, "range", NONE)
    split = [
        part.first + 1
        for client_id, given in old.items()
        for part in given.range
        if client_id[-1] in "02468"
    ]
    after = {A: sorted([*before[A], *split])}
    new = plan.make_plan(members, after, "range", NONE)
    assert plan.has_drifted(old, after, new, members)
    assert not plan.has_drifted(old, after, new, group(1))


# --- which streams are consumed, and which shards move ---


@pytest.mark.parametrize(
    ("states", "others", "expected"),
    [
        ("up up", 0, True),
        ("up leaving", 1, True),
        ("drained up", 0, True),
        ("up missing", 1, False),
        ("up degraded", 2, False),
        ("degraded degraded", 0, True),
        ("leaving leaving", 0, False),
    ],
)
def test_ranges_of_departing_members_are_consumed_while_others_stay(
    states: str, others: int, *, expected: bool
) -> None:
    ranges = (Interval(A, 0, HALF - 1),), (Interval(A, HALF, LAST),)
    halves = zip(in_states(states), ranges, strict=True)
    members = [m._replace(range=range_) for m, range_ in halves]
    members += [member(f"d{n}") for n in range(others)]
    assert plan.is_fully_consumed(members, [A]) is expected
    # No member requests stream B, so it need not be consumed.
    assert plan.is_fully_consumed(members, [A, B]) is expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(0, 9), (10, LAST)], True),
        ([(0, 9), (5, LAST)], True),  # ranges overlap while shards move
        ([(0, LAST), (5, 9)], True),
        ([(1, 9), (10, LAST)], False),
        ([(0, 9), (11, LAST)], False),
        ([(0, 9), (10, LAST - 1)], False),
        ([(0, 9), None], False),
        ([None, (10, LAST)], False),
    ],
)
def test_a_stream_is_fully_consumed_from_its_first_hash_key_to_its_last(
    parts: list[tuple[int, int] | None], *, expected: bool
) -> None:
    members = [
        member(f"c{n}", range=None if part is None else (Interval(A, *part),))
        for n, part in enumerate(parts)
    ]
    assert plan.is_fully_consumed(members, [A]) is expected


def test_a_plan_moves_shards_if_it_takes_them_from_a_member() -> None:
    members = group(2)
    first = plan.make_plan(members, FOUR, "range", BOTH)
    assert not plan.moves_any(first, members)
    members = members_of(first, members)
    assert not plan.moves_any(first, members)
    joined = [*members, member("c2")]
    assert plan.moves_any(plan.make_plan(joined, FOUR, "range", BOTH), joined)


@pytest.mark.parametrize("state", ["missing", "degraded"])
def test_assigning_unread_shards_moves_nothing(state: str) -> None:
    members = group(3)
    members = members_of(plan.make_plan(members, FOUR, "range", BOTH), members)
    members[1] = members[1]._replace(state=state)
    assert not plan.moves_any(plan.make_plan(members, FOUR, "range", BOTH), members)


@pytest.mark.parametrize("beside", ["stream/0", "stream/z"])
def test_a_range_of_another_stream_does_not_count(beside: str) -> None:
    other = A.replace("stream/a", beside)
    whole, same = Interval(A, 0, LAST), Interval(other, 0, LAST)
    given = {"c0": Assignment(0, (same,), NONE)}
    (c0,) = members_of({"c0": Assignment(0, (whole,), NONE)}, [member("c0")])
    assert plan.moves_any(given, [c0])
    reads_other = c0._replace(streams=frozenset({A, other}), range=(same,))
    assert not plan.is_fully_consumed([reads_other], [A])


def test_standbys_try_to_lead_in_order_and_the_other_clients_soon_after_them() -> None:
    delays = [plan.election_delay_seconds(n, lambda: 0.5) for n in range(3)]
    assert delays == [0.0, 0.2, 0.4]
    first, last = (
        {plan.election_delay_seconds(n, draw) for n in (3, 80, 199)}
        for draw in (lambda: 0.0, lambda: 1.0)
    )
    assert (*first, *last) == pytest.approx((0.6, 2.6))
