"""Test that an observer distinguishes live and dead sessions by its own clock."""

from __future__ import annotations

import math

import pytest

from kinesumer.core.liveness import (
    BeatCounter,
    HeartbeatWatch,
    Lease,
    ShardLease,
    interval_seconds,
    lease_ms,
    proves_death,
)
from kinesumer.model.rows import MemberRow

MEMBER = MemberRow("c1", "s1", beat=4, lease_ms=8000)
GAP = 3.0


def watch_until(
    watch: HeartbeatWatch, member: MemberRow, last: int, first: int = 0
) -> bool:
    """Observe a member once a second. Return whether it is stale at the end."""
    stale: list[MemberRow] = []
    for now in range(first, last + 1):
        stale = watch.observe([member], now, GAP)
    return stale == [member]


def test_a_lease_permits_until_its_deadline() -> None:
    lease = Lease("s1", deadline=6.0)
    assert [lease.permits(now) for now in (5.999, 6.0, 6.001)] == [True, False, False]


def test_an_ended_lease_permits_nothing_even_if_a_late_answer_extends_it() -> None:
    lease = Lease("s1", deadline=6.0)
    lease.end()
    assert not lease.permits(-1e9)
    assert lease.deadline == -math.inf  # code may compare with the deadline itself
    lease.deadline = 100.0
    assert not lease.permits(5.0)


@pytest.mark.parametrize("lease_ms", [2500, 8000, 20_000])
def test_a_heartbeat_unchanged_for_its_holders_lease_is_stale(lease_ms: int) -> None:
    watch, member = HeartbeatWatch(), MEMBER._replace(lease_ms=lease_ms)
    lease = lease_ms / 1000
    assert watch.observe([member], 0, lease) == []
    assert watch.observe([member], lease - 0.001, lease) == []
    assert watch.observe([member], lease, lease) == [member]


def test_the_observer_counts_from_its_own_first_sight() -> None:
    watch = HeartbeatWatch()
    watch.observe([], 0, GAP)
    assert not watch_until(watch, MEMBER, 9, first=2)
    assert watch_until(watch, MEMBER, 10, first=10)


CHANGES = [{"beat": 5}, {"beat": 3}, {"session": "s2"}, {"session": "s0"}]


@pytest.mark.parametrize("changed", CHANGES)
def test_any_change_starts_the_window_again(changed: dict[str, object]) -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 7)
    other = MEMBER._replace(**changed)  # type: ignore[arg-type]
    assert watch.unchanged_for(other, 8) == 0
    assert not watch_until(watch, other, 15, first=8)
    assert watch_until(watch, other, 16, first=16)


def test_the_living_are_watched_beside_the_dead() -> None:
    watch, dead = HeartbeatWatch(), MEMBER._replace(client_id="c0", dead=True)
    for now in range(8):
        watch.observe([dead, MEMBER], now, GAP)
    assert watch.observe([dead, MEMBER], 8, GAP) == [MEMBER]


@pytest.mark.parametrize(
    ("gap", "is_reset", "is_missing", "expected"),
    [
        (1.0, False, False, [MEMBER]),
        (GAP, False, False, [MEMBER]),
        (GAP + 0.1, False, False, []),
        (1.0, True, False, []),
        (1.0, False, True, []),
    ],
)
def test_leases_start_again_after_a_long_gap_a_reset_or_a_missing_row(
    gap: float, *, is_reset: bool, is_missing: bool, expected: list[MemberRow]
) -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 7)
    if is_reset:
        watch.reset()
    if is_missing:
        watch.observe([], 7, GAP)
    assert watch.observe([MEMBER], 7 + gap, GAP) == expected
    if not expected:
        assert not watch_until(watch, MEMBER, 14, first=11)


def test_the_time_since_a_heartbeat_changed_is_known() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 5, first=2)
    assert watch.unchanged_for(MEMBER, 6) == 4
    assert watch.unchanged_for(MEMBER._replace(client_id="c2"), 6) == 0


def test_a_member_is_missing_until_its_next_heartbeat_even_after_a_reset() -> None:
    watch, later = HeartbeatWatch(), MEMBER._replace(beat=MEMBER.beat + 1)
    watch_until(watch, MEMBER, 5)
    assert not watch.is_missing(MEMBER, 5, 6)
    assert watch.is_missing(MEMBER, 5, 4.5)
    watch.reset()
    watch.observe([MEMBER], 6, GAP)
    assert watch.is_missing(MEMBER, 6, 5)
    watch.observe([later], 7, GAP)
    assert not watch.is_missing(later, 7, 5)
    watch.observe([MEMBER], 8, GAP)
    assert not watch.is_missing(MEMBER, 8, 5)


@pytest.mark.parametrize(
    ("row", "dead"),
    [
        (MEMBER, False),
        (MEMBER._replace(dead=True), True),
        (MEMBER._replace(session="s2"), True),
        (MEMBER._replace(session="s0"), True),
        (None, True),
    ],
)
def test_a_mark_a_successor_or_a_pruned_row_prove_a_death(
    row: MemberRow | None, dead: bool
) -> None:
    assert proves_death("s1", row) is dead


def beats(counter: BeatCounter, *beats: int, state: str = "up") -> list[bool]:
    """Return, for each of these heartbeats, whether the member is alive after it."""
    member = MEMBER._replace(state=state)
    return [bool(counter.beating([member._replace(beat=beat)])) for beat in beats]


@pytest.mark.parametrize("state", ["up", "degraded", "missing", "leaving"])
def test_a_member_with_two_new_heartbeats_is_alive_unless_it_leaves(state: str) -> None:
    alive = state != "leaving"
    observed = beats(BeatCounter(), 4, 4, 5, 5, 6, 6, state=state)
    assert observed == [False] * 4 + [alive] * 2


def test_heartbeats_of_another_session_count_separately() -> None:
    counter = BeatCounter()
    assert beats(counter, 4, 5) == [False, False]
    assert counter.beating([MEMBER._replace(session="s2", beat=6)]) == []


@pytest.mark.parametrize(
    ("clients", "interval", "lease"),
    [
        (1, 2, 8000),
        (250, 2, 8000),
        (500, 2, 8000),
        (600, 2.4, 9600),
        (1000, 4, 16000),
        (2500, 10, 40000),
    ],
)
def test_large_fleets_beat_less_often_and_have_longer_leases(
    clients: int, interval: float, lease: int
) -> None:
    assert interval_seconds(2.0, clients) == interval
    assert lease_ms((2.0, 8.0), clients) == lease
    assert lease_ms((2.0, 6.0), 1) == 6000


def test_a_shard_with_a_lease_of_its_own_needs_both_leases() -> None:
    row_deadline = 5.0
    session = Lease("s", 8.0)
    lease = ShardLease(session, lambda: row_deadline)
    assert (lease.session, lease.deadline) == ("s", 5.0)
    assert lease.permits(4.9) and not lease.permits(5.0)
    row_deadline = 20.0
    assert lease.deadline == 8.0
    assert lease.permits(7.9) and not lease.permits(8.0)
    assert not lease.is_lost and not session.is_lost
    session.end()
    assert not lease.permits(1.0)
    row_deadline = -math.inf
    assert lease.is_lost
