"""When a plan is due: at once, with others gathered, or after the moves before it."""

from __future__ import annotations

from kinesumer.core.rebalance import RebalanceSchedule
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval

A = "arn:aws:kinesis:us-east-1:123456789012:stream/a"
WHOLE = (Interval(A, 0, HASH_KEYS - 1),)


def member(client_id: str, **fields: object) -> MemberRow:
    made = MemberRow(client_id, f"session of {client_id}", streams=frozenset({A}))
    return made._replace(**fields)  # type: ignore[arg-type]


READER, IDLER = member("c0", range=WHOLE), member("c1", range=())
JOINED = member("c2")


def agenda(*, moving_until: float = 0.0) -> RebalanceSchedule:
    """Return an agenda whose last plan, at 0, was for a reader and an idler."""
    made = RebalanceSchedule(rebalance_delay_seconds=2.0)
    made.record_plan([READER, IDLER], moving_until)
    return made


def test_the_first_plan_is_due_at_once() -> None:
    assert RebalanceSchedule(2.0).is_due([member("c0")], [A], 0.0)


def test_nothing_is_due_while_nothing_changes() -> None:
    assert not agenda().is_due([READER, IDLER], [A], 100.0)


def test_what_is_asked_for_is_due_once() -> None:
    made = agenda()
    made.request()
    assert made.is_due([READER, IDLER], [A], 1.0)
    made.record_plan([READER, IDLER], 0.0)
    assert not made.is_due([READER, IDLER], [A], 2.0)


def test_joins_are_gathered() -> None:
    made = agenda()
    times = (1.0, 2.9, 3.0, 9.0)
    due = [made.is_due([READER, IDLER, JOINED], [A], now) for now in times]
    assert due == [False, False, True, True]


def test_a_join_that_is_taken_back_is_forgotten() -> None:
    made = agenda()
    made.is_due([READER, IDLER, JOINED], [A], 1.0)
    assert not made.is_due([READER, IDLER], [A], 2.0)
    assert not made.is_due([READER, IDLER, JOINED], [A], 3.5)


def test_a_change_waits_for_the_moves_of_the_plan_before() -> None:
    made, leaving = agenda(moving_until=5.0), READER._replace(state="leaving")
    due = [made.is_due([leaving, IDLER], [A], now) for now in (1.0, 4.9, 5.0)]
    assert due == [False, False, True]


def test_what_nobody_reads_does_not_wait() -> None:
    made = agenda(moving_until=5.0)
    assert made.is_due([IDLER], [A], 1.0)


def test_who_leaves_last_does_not_wait() -> None:
    made = agenda(moving_until=5.0)
    members = [m._replace(state="leaving") for m in (READER, IDLER)]
    assert made.is_due(members, [A], 1.0)


def test_a_new_leader_waits_for_the_moves_of_a_plan_it_does_not_know() -> None:
    made = agenda()
    made.reset(5.0)
    assert not made.is_due([READER, IDLER], [A], 4.9)
    assert made.is_due([READER, IDLER], [A], 5.0)


def test_a_plan_that_moves_nothing_does_not_shorten_the_moves_of_another() -> None:
    made = agenda(moving_until=5.0)
    made.record_plan([READER, IDLER], 0.0)
    made.request()
    assert not made.is_due([READER, IDLER], [A], 4.0)
