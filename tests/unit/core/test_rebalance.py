"""Test when a plan is due, and the reason that is given for its ranges."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.plan import Work, make_plan
from kinesumer.core.rebalance import LoadSchedule, RebalanceSchedule, load_reason
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval

A = "arn:aws:kinesis:us-east-1:123456789012:stream/a"
WHOLE = (Interval(A, 0, HASH_KEYS - 1),)


def member(client_id: str, **fields: object) -> MemberRow:
    made = MemberRow(client_id, f"session of {client_id}", streams=frozenset({A}))
    return made._replace(**fields)  # type: ignore[arg-type]


READER, IDLER = member("c0", range=WHOLE), member("c1", range=())
JOINED = member("c2")


LEAVING = READER._replace(state="leaving")


def schedule(*, moving_until: float = 0.0) -> RebalanceSchedule:
    """Return a schedule whose last plan, at time 0, had a reader and an idle member."""
    made = RebalanceSchedule(rebalance_delay_seconds=2.0)
    made.record_plan([READER, IDLER], moving_until)
    return made


def test_the_first_plan_is_due_at_once() -> None:
    assert RebalanceSchedule(2.0).is_due([member("c0")], [A], 0.0)


@pytest.mark.parametrize(
    ("members", "moving_until", "times"),
    [
        ([READER, IDLER], 0.0, {100.0: False}),
        ([READER, IDLER, JOINED], 0.0, {1.0: False, 2.9: False, 3.0: True, 9.0: True}),
        ([LEAVING, IDLER], 5.0, {1.0: False, 4.9: False, 5.0: True}),
        ([IDLER], 5.0, {1.0: True}),  # a shard without a reader is planned at once
        ([LEAVING, IDLER._replace(state="leaving")], 5.0, {1.0: True}),
    ],
)
def test_a_plan_gathers_joins_and_waits_for_the_moves_of_the_plan_before(
    members: list[MemberRow], moving_until: float, times: dict[float, bool]
) -> None:
    made = schedule(moving_until=moving_until)
    assert {now: made.is_due(members, [A], now) for now in times} == times


def test_a_requested_plan_is_due_once() -> None:
    made = schedule()
    made.request()
    assert made.is_due([READER, IDLER], [A], 1.0)
    made.record_plan([READER, IDLER], 0.0)
    assert not made.is_due([READER, IDLER], [A], 2.0)


def test_a_member_that_joins_and_leaves_again_is_forgotten() -> None:
    made = schedule()
    made.is_due([READER, IDLER, JOINED], [A], 1.0)
    assert not made.is_due([READER, IDLER], [A], 2.0)
    assert not made.is_due([READER, IDLER, JOINED], [A], 3.5)


def test_a_new_leader_waits_for_the_moves_of_a_plan_it_does_not_know() -> None:
    made = schedule()
    made.reset(5.0)
    assert not made.is_due([READER, IDLER], [A], 4.9)
    assert made.is_due([READER, IDLER], [A], 5.0)


def test_a_plan_without_moves_does_not_shorten_other_moves() -> None:
    made = schedule(moving_until=5.0)
    made.record_plan([READER, IDLER], 0.0)
    made.request()
    assert not made.is_due([READER, IDLER], [A], 4.0)


# --- plans by load ---


def follow(made: LoadSchedule, better: Collection[int], until: int) -> list[float]:
    """Look at the loads of a minute, and return when plans are made."""
    planned: list[float] = []
    for at in range(until):
        if made.looks(now := float(at)):
            if made.is_due(now, is_better=at in better):
                made.record_plan(now)
                planned.append(now)
    return planned


def test_loads_are_looked_at_every_five_seconds() -> None:
    made = LoadSchedule(20.0)
    assert [at for at in range(12) if made.looks(float(at))] == [0, 5, 10]


def test_another_plan_must_be_better_for_ten_seconds() -> None:
    assert follow(LoadSchedule(20.0), range(10, 16), 60) == []
    assert follow(LoadSchedule(20.0), [10, 15, 25, 30], 60) == []
    assert follow(LoadSchedule(20.0), range(8, 21), 60) == [20]


def test_plans_by_load_keep_their_interval() -> None:
    assert follow(LoadSchedule(20.0), range(100), 100) == [10, 30, 50, 70, 90]
    assert follow(LoadSchedule(45.0), range(100), 100) == [10, 55]
    made = LoadSchedule(20.0)
    made.record_plan(7.0)  # because a client has joined
    assert follow(made, range(100), 40) == [30]


STREAMS = frozenset({"a"})


def starts(count: int) -> dict[str, list[int]]:
    return {"a": [number * HASH_KEYS // count for number in range(count)]}


def ranges(count: int, *sizes: int) -> list[tuple[Interval, ...]]:
    """Return successive ranges with these numbers of ``count`` shards."""
    cuts = [sum(sizes[:at]) * HASH_KEYS // count for at in range(len(sizes) + 1)]
    return [
        (Interval("a", first, end - 1),) if first < end else ()
        for first, end in pairwise(cuts)
    ]


def members(count: int, *sizes: int) -> list[MemberRow]:
    """Return clients with these numbers of successive shards."""
    return [
        MemberRow(f"c{number}", f"s{number}", streams=STREAMS, range=range_)
        for number, range_ in enumerate(ranges(count, *sizes))
    ]


def reason(
    clients: Sequence[MemberRow],
    *work: int,
    is_known: bool = True,
    unknown: int = 0,
) -> str:
    shards = starts(len(work))
    found = Work({"a": work}, is_known)
    return load_reason(clients, shards, found, unknown)


SEVERAL = "client with several shards"
EVEN = f"ranges are kept: no {SEVERAL} has more than 12 % above its share of the work"
HARDLY = f"ranges are kept: other ranges would lower the most work of a {SEVERAL} only "
HOT_FIRST = 900, *[10] * 8


@pytest.mark.parametrize(
    ("sizes", "work", "text"),
    [
        ((3, 3), (36, 37, 37, 30, 30, 30), EVEN),
        # a hot shard alone makes no client too busy, and the others have much less
        ((1, 2, 2), (900, 10, 10, 10, 10), EVEN),
        ((1, 4, 4), HOT_FIRST, EVEN),
        (
            (1, 6, 2),
            HOT_FIRST,
            f"shards move to lower the most work of a {SEVERAL} from 19 % to 13 % of "
            "its share: 23 % of the shards",
        ),
        # others are hardly better
        (
            (52, 1),
            (300, 300, *[1] * 50, 500),
            f"{HARDLY}from 114 % to 106 % of its share, and move 87 % of the shards",
        ),
        (
            (2, 4),
            (1000, 5, 5, 1000, 600, 150),
            f"{HARDLY}from 128 % to 127 % of its share",
        ),
        (
            (2, 1),
            (20, 20, 20),
            f"ranges are kept: the busiest {SEVERAL} has 134 % of its share of the "
            "work, and no other successive shards would lower that",
        ),
        (
            (6, 6),
            (*[20] * 6, *[10] * 6),
            f"shards move to lower the most work of a {SEVERAL} from 134 % to 112 % of "
            "its share: 9 % of the shards",
        ),
    ],
)
def test_shards_move_only_if_that_lowers_the_most_work(
    sizes: tuple[int, ...], work: tuple[int, ...], text: str
) -> None:
    assert reason(members(len(work), *sizes), *work) == text


def test_unknown_loads_keep_the_ranges() -> None:
    clients = members(4, 1, 3)
    work = 500, 10, 10, 10
    text = reason(clients, *work, is_known=False, unknown=3)
    assert "the load of 3 shards isn't known yet" in text
    text = reason(clients, *work, is_known=False, unknown=1)
    assert "the load of 1 shard isn't known yet" in text


def test_a_client_that_joins_takes_shards_although_the_ranges_are_even() -> None:
    joined = MemberRow("c9", "s9", streams=STREAMS)
    text = reason([*members(8, 4, 4), joined], *[10] * 8, is_known=False, unknown=8)
    assert text.startswith("clients have joined, left or changed")


@pytest.mark.parametrize("is_known", [True, False])
def test_a_limit_moves_shards(is_known: bool) -> None:
    first, second = members(8, 4, 4)
    limited = first._replace(max_shards=2)
    text = reason([limited, second], *[10] * 8, is_known=is_known, unknown=8)
    assert text == "shards move so that no client has more than its max_shards"


def test_labels_are_named() -> None:
    clients = [
        m._replace(label=label)
        for m, label in zip(members(8, 2, 2, 2, 2), "xxyy", strict=True)
    ]
    text = reason(clients, *[30] * 4, *[10] * 4)
    assert "the most work of a label from 150 %" in text


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=20),
    st.integers(1, 5),
    st.booleans(),
)
def test_ranges_are_said_to_be_kept_exactly_if_the_plan_keeps_them(
    work: list[int], count: int, is_known: bool
) -> None:
    each, more = divmod(len(work), count)
    clients = members(len(work), *(each + (at < more) for at in range(count)))
    known = Work({"a": work}, is_known)
    plan = make_plan(clients, starts(len(work)), "load", STREAMS, known)
    is_kept = all(plan[m.client_id].range == m.range for m in clients)
    text = load_reason(clients, starts(len(work)), known, 0)
    assert text.startswith("ranges are kept") is is_kept
