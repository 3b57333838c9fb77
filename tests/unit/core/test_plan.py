"""The leader's plan: who gets shards, whom a change concerns, what a drift is."""

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
LAST = HASH_KEYS - 1
FOUR = {A: [n * HASH_KEYS // 4 for n in range(4)]}


def member(client_id: str, **changes: Any) -> MemberRow:
    made = MemberRow(client_id, f"session of {client_id}", streams=frozenset({A}))
    return made._replace(**changes)


def group(count: int, **changes: Any) -> list[MemberRow]:
    return [member(f"c{n}", **changes) for n in range(count)]


def members_of(
    given: plan.Plan, members: list[MemberRow], **changes: Any
) -> list[MemberRow]:
    """Return members whose rows say what the plan says."""
    return [
        m._replace(
            range=given[m.client_id].range,
            index=given[m.client_id].index,
            syncs=given[m.client_id].syncs,
            **changes,
        )
        for m in members
    ]


def test_the_living_are_ordered_by_id() -> None:
    c2, c1, dead = member("c2"), member("c1"), member("c0", dead=True)
    assert plan.live_clients([c2, dead, c1]) == [c1, c2]


def test_a_query_takes_no_part_in_plans() -> None:
    c1, query = member("c1"), member("a query", kind="query")
    later = member("of a later version", kind="archiver")
    assert plan.live_clients([query, c1, later]) == [c1]


def ids(members: list[MemberRow]) -> str:
    return " ".join(m.client_id for m in members)


@pytest.mark.parametrize(
    ("states", "taking"),
    [
        ("up up up", "c0 c1 c2"),
        ("up leaving up", "c0 c2"),
        ("up degraded up", "c0 c2"),
        ("up degraded degraded", "c0 c1 c2"),
        ("up degraded", "c0"),
        ("up silent up", "c0 c2"),
        ("degraded silent", "c0 c1"),
        ("degraded degraded", "c0 c1"),
        ("leaving leaving", ""),
        ("up degraded leaving", "c0"),
    ],
)
def test_leavers_get_nothing_and_the_unwell_only_if_more_than_half_are(
    states: str, taking: str
) -> None:
    members = [member(f"c{n}", state=s) for n, s in enumerate(states.split())]
    assert ids(plan.assignable(members)) == taking


@pytest.mark.parametrize("assignor", ["range", "sticky"])
def test_a_plan_tiles_every_stream_in_order_of_index(assignor: Any) -> None:
    made = plan.make_plan(group(2), FOUR, assignor, frozenset({A}))
    half = HASH_KEYS // 2
    assert made == {
        "c0": Assignment(0, (Interval(A, 0, half - 1),), frozenset()),
        "c1": Assignment(1, (Interval(A, half, LAST),), frozenset()),
    }


def test_the_drained_get_nothing() -> None:
    members = [member("c0", drained=True), member("c1"), member("c2", state="silent")]
    assert ids(plan.assignable(members)) == "c1"
    assert plan.assignable(members[:1]) == []


def test_who_leaves_keeps_a_place_but_no_range() -> None:
    members = [member("c0", state="leaving"), member("c1")]
    made = plan.make_plan(members, FOUR, "range", frozenset({A}))
    assert made["c0"] == Assignment(0, (), frozenset())
    assert made["c1"].range == (Interval(A, 0, LAST),)


def test_sticky_plans_move_nothing_when_somebody_joins_an_even_group() -> None:
    first = plan.make_plan(group(2), FOUR, "sticky", frozenset({A}))
    members = [*members_of(first, group(2)), member("c9")]
    after = plan.make_plan(members, FOUR, "sticky", frozenset({A}))
    kept = plan.shares({c: after[c] for c in ("c0", "c1")}, FOUR)
    assert sum(kept.values()) == 3


def test_each_assignor_moves_what_it_moves() -> None:
    first = plan.make_plan(group(3), FOUR, "range", frozenset({A}))
    staying = members_of(first, group(3))[1:]
    contiguous = plan.make_plan(staying, FOUR, "range", frozenset({A}))
    sticky = plan.make_plan(staying, FOUR, "sticky", frozenset({A}))
    assert not plan.moves_any(sticky, staying)
    assert plan.moves_any(contiguous, staying)


def test_streams_that_the_leader_cannot_reach_are_kept_by_the_first_who_asks() -> None:
    members = [member("c0"), member("c1", streams=BOTH), member("c2", streams=BOTH)]
    made = plan.make_plan(members, {**FOUR, B: [0]}, "range", frozenset({A}))
    keeps = {client_id: part.syncs for client_id, part in made.items()}
    assert keeps == {"c0": frozenset(), "c1": frozenset({B}), "c2": frozenset()}


def test_one_keeper_may_keep_many_streams() -> None:
    made = plan.make_plan([member("c0", streams=BOTH)], {}, "range", frozenset())
    assert made["c0"].syncs == BOTH


def test_only_members_whose_part_changed_are_written() -> None:
    members = group(3)
    made = plan.make_plan(members, FOUR, "range", frozenset({A}))
    same = members_of(made, members)
    assert plan.to_assign(made, same) == []
    assert plan.to_assign(made, [*same, member("new")]) == []
    same[1] = same[1]._replace(range=())
    assert plan.to_assign(made, same) == [same[1]]


@pytest.mark.parametrize(
    "changes", [{"range": None}, {"syncs": BOTH}, {"syncs": NONE}, {"index": None}]
)
def test_each_part_of_an_assignment_counts(changes: dict[str, Any]) -> None:
    made = plan.make_plan(group(1), FOUR, "range", NONE)
    (told,) = members_of(made, group(1))
    other = told._replace(**changes)
    assert plan.to_assign(made, [other]) == [other]


@pytest.mark.parametrize(
    ("before", "now", "written"),
    [(0, 1, True), (2, 3, True), (3, 2, True), (3, 4, False), (7, 5, False)],
)
def test_an_index_is_written_only_for_standbys(
    before: int, now: int, written: bool
) -> None:
    told = member("c", index=before, range=())
    made = {"c": Assignment(now, (), frozenset())}
    assert bool(plan.to_assign(made, [told])) is written


def test_the_first_plan_is_due_at_once() -> None:
    assert plan.change(None, group(2)) == Change(joined=False, other=True)


def test_heartbeats_and_assignments_are_no_change() -> None:
    after = group(2, beat=99, range=(), index=1, clients=2, leader_epoch=3)
    assert plan.change(group(2), after) == Change(joined=False, other=False)


def test_a_join_alone_is_told_apart() -> None:
    assert plan.change(group(2), group(3)) == Change(joined=True, other=False)


def test_a_death_is_answered_at_once_even_with_a_join() -> None:
    assert plan.change(group(3), group(2)) == Change(joined=False, other=True)
    swapped = [*group(2), member("c9")]
    assert plan.change(group(3), swapped) == Change(joined=True, other=True)


@pytest.mark.parametrize(
    "wish",
    [{"state": "leaving"}, {"weight": 2}, {"streams": BOTH}, {"drained": True}],
)
def test_other_wishes_are_answered_at_once(wish: dict[str, Any]) -> None:
    assert plan.change(group(1), group(1, **wish)).other


def test_shares_count_the_shards_that_start_in_a_range() -> None:
    made = plan.make_plan(group(3), FOUR, "range", frozenset({A}))
    assert plan.shares(made, FOUR) == {"c0": 1, "c1": 2, "c2": 1}
    assert plan.shares(made, {}) == {"c0": 0, "c1": 0, "c2": 0}


def drifted(shards: dict[str, list[int]], after: dict[str, list[int]]) -> bool:
    old, new = (
        plan.make_plan(group(2), s, "range", frozenset({A})) for s in (shards, after)
    )
    return plan.has_drifted(old, after, new, group(2))


def test_one_split_is_no_drift_and_many_are() -> None:
    whole = [0, HASH_KEYS // 2]
    assert not drifted({A: whole}, {A: [0, 5, HASH_KEYS // 2]})
    assert not drifted({A: whole}, {A: [0, 5, 6, HASH_KEYS // 2]})
    assert drifted({A: whole}, {A: [0, 5, 6, 7, 8, HASH_KEYS // 2]})


def test_a_tenth_of_a_large_share_is_no_drift() -> None:
    def shards(low: int, high: int) -> dict[str, list[int]]:
        half = HASH_KEYS // 2
        return {A: [*range(low), *range(half, half + high)]}

    assert not drifted(shards(50, 50), shards(60, 50))
    assert not drifted(shards(20, 20), shards(22, 18))
    assert drifted(shards(50, 50), shards(62, 50))


@pytest.mark.parametrize(("share", "is_drift"), [(1, False), (2, True)])
def test_who_has_no_part_yet_has_none_of_its_share(
    share: int, *, is_drift: bool
) -> None:
    shards = {A: list(range(share))}
    given = plan.make_plan([member("new")], shards, "range", NONE)
    assert plan.has_drifted({}, shards, given, [member("new")]) is is_drift


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


def test_a_plan_is_not_assigned_to_who_asks_for_other_streams_by_now() -> None:
    members = group(2)
    given = plan.make_plan(members, FOUR, "range", BOTH)
    members[1] = members[1]._replace(streams=frozenset({B}))
    assert ids(plan.to_assign(given, members)) == "c0"


# --- what stands still ---


def halves(*states: str) -> list[MemberRow]:
    """Return members with half of the hash space each."""
    middle = HASH_KEYS // 2
    ranges = (Interval(A, 0, middle - 1),), (Interval(A, middle, LAST),)
    made = zip(group(2), ranges, states, strict=True)
    return [m._replace(range=range_, state=state) for m, range_, state in made]


@pytest.mark.parametrize(
    ("states", "read"),
    [
        (("up", "up"), True),
        (("up", "leaving"), True),
        (("up", "silent"), False),
        (("up", "degraded"), False),
        (("degraded", "degraded"), True),
        (("leaving", "leaving"), False),
    ],
)
def test_ranges_of_who_leaves_are_still_read_while_others_stay(
    states: tuple[str, str], read: bool
) -> None:
    joined = [] if "up" not in states else [member("c3")]
    if states == ("up", "degraded"):
        joined.append(member("c4"))
    assert plan.is_fully_consumed([*halves(*states), *joined], [A]) is read


def test_the_drained_read_on_until_others_have_their_shards() -> None:
    drained, other = halves("up", "up")
    assert plan.is_fully_consumed([drained._replace(drained=True), other], [A])


@pytest.mark.parametrize("missing", [0, 1])
def test_a_range_of_nobody_is_not_read(missing: int) -> None:
    members = halves("up", "up")
    members[missing] = members[missing]._replace(range=None)
    assert not plan.is_fully_consumed(members, [A])


def test_what_nobody_asks_for_need_not_be_read() -> None:
    assert plan.is_fully_consumed(halves("up", "up"), [A, B])


def test_a_plan_moves_shards_if_it_takes_them_from_a_member() -> None:
    members = group(2)
    first = plan.make_plan(members, FOUR, "range", BOTH)
    assert not plan.moves_any(first, members)
    members = members_of(first, members)
    assert not plan.moves_any(first, members)
    joined = [*members, member("c2")]
    assert plan.moves_any(plan.make_plan(joined, FOUR, "range", BOTH), joined)


@pytest.mark.parametrize("state", ["silent", "degraded"])
def test_a_plan_that_only_gives_away_what_nobody_reads_moves_nothing(
    state: str,
) -> None:
    members = group(3)
    members = members_of(plan.make_plan(members, FOUR, "range", BOTH), members)
    members[1] = members[1]._replace(state=state)
    assert not plan.moves_any(plan.make_plan(members, FOUR, "range", BOTH), members)


@pytest.mark.parametrize("beside", ["stream/0", "stream/z"])
def test_a_part_of_another_stream_makes_up_for_nothing(beside: str) -> None:
    other = A.replace("stream/a", beside)
    whole, same = Interval(A, 0, LAST), Interval(other, 0, LAST)
    given = {"c0": Assignment(0, (same,), NONE)}
    (c0,) = members_of({"c0": Assignment(0, (whole,), NONE)}, [member("c0")])
    assert plan.moves_any(given, [c0])
    reads_other = c0._replace(streams=frozenset({A, other}), range=(same,))
    assert not plan.is_fully_consumed([reads_other], [A])


def reads(*parts: tuple[int, int]) -> bool:
    """Tell whether these parts of a stream, each of a member, are all of it."""
    members = [
        member(f"c{n}", range=(Interval(A, first, last),))
        for n, (first, last) in enumerate(parts)
    ]
    return plan.is_fully_consumed(members, [A])


def test_what_is_read_reaches_from_the_first_hash_key_to_the_last() -> None:
    assert reads((0, 9), (10, LAST))
    assert not reads((1, 9), (10, LAST))
    assert not reads((0, 9), (11, LAST))
    assert not reads((0, 9), (10, LAST - 1))


def test_parts_that_overlap_while_shards_move_are_read() -> None:
    assert reads((0, 9), (5, LAST))
    assert reads((0, LAST), (5, 9))
