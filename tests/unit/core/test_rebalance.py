"""Test when a plan is due: at once, or after a wait for joins or earlier moves."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from kinesumer.core.rebalance import LoadSchedule, RebalanceSchedule
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
