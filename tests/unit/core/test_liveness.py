"""Who is alive, as one observer sees it on its own clock."""

from __future__ import annotations

import math

import pytest

from kinesumer.core.liveness import (
    BeatCounter,
    HeartbeatWatch,
    Lease,
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
    """Look once a second, and tell whether the last look wants the member fenced."""
    stale: list[MemberRow] = []
    for now in range(first, last + 1):
        stale = watch.observe([member], now, GAP)
    return stale == [member]


def test_a_lease_permits_until_its_deadline() -> None:
    lease = Lease("s1", deadline=6.0)
    assert lease.permits(5.999)
    assert not lease.permits(6.0)
    assert not lease.permits(6.001)


def test_an_ended_lease_permits_nothing_even_if_a_late_answer_extends_it() -> None:
    lease = Lease("s1", deadline=6.0)
    lease.end()
    assert not lease.permits(-1e9)
    assert lease.deadline == -math.inf  # for who compares times only
    lease.deadline = 100.0
    assert not lease.permits(5.0)


def test_a_beat_unchanged_for_the_lease_is_stale() -> None:
    assert not watch_until(HeartbeatWatch(), MEMBER, 7)
    assert watch_until(HeartbeatWatch(), MEMBER, 8)


def test_the_observer_counts_from_its_own_first_sight() -> None:
    watch = HeartbeatWatch()
    watch.observe([], 0, GAP)
    assert not watch_until(watch, MEMBER, 9, first=2)
    assert watch_until(watch, MEMBER, 10, first=10)


def test_the_holders_own_lease_counts() -> None:
    slow = MEMBER._replace(lease_ms=20_000)
    watch = HeartbeatWatch()
    assert not watch_until(watch, slow, 19)
    assert watch_until(watch, slow, 20, first=20)


def test_a_lease_is_kept_to_the_millisecond() -> None:
    watch, member = HeartbeatWatch(), MEMBER._replace(lease_ms=2500)
    watch.observe([member], 0, GAP)
    assert watch.observe([member], 2.499, GAP) == []
    assert watch.observe([member], 2.5, GAP) == [member]


CHANGES = [{"beat": 5}, {"beat": 3}, {"session": "s2"}, {"session": "s0"}]


@pytest.mark.parametrize("changed", CHANGES)
def test_any_change_starts_the_window_again(changed: dict[str, object]) -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 7)
    other = MEMBER._replace(**changed)  # type: ignore[arg-type]
    assert not watch_until(watch, other, 15, first=8)
    assert watch_until(watch, other, 16, first=16)


def test_a_row_missing_for_a_moment_starts_the_window_again() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 5)
    watch.observe([], 6, GAP)
    assert not watch_until(watch, MEMBER, 14, first=7)


def test_the_dead_are_not_fenced_again() -> None:
    assert not watch_until(HeartbeatWatch(), MEMBER._replace(dead=True), 20)


def test_the_living_are_watched_beside_the_dead() -> None:
    watch, dead = HeartbeatWatch(), MEMBER._replace(client_id="c0", dead=True)
    for now in range(8):
        watch.observe([dead, MEMBER], now, GAP)
    assert watch.observe([dead, MEMBER], 8, GAP) == [MEMBER]


def test_after_an_outage_every_window_starts_again() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 7)
    assert watch.observe([MEMBER], 7 + GAP + 0.1, GAP) == []
    assert not watch_until(watch, MEMBER, 17, first=11)


def test_a_gap_just_short_of_an_outage_changes_nothing() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 7)
    assert watch.observe([MEMBER], 7 + GAP, GAP) == [MEMBER]


def test_a_reset_forgets_what_was_seen() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 7)
    watch.reset()
    assert watch.observe([MEMBER], 8, GAP) == []


def test_how_long_a_beat_has_been_unchanged_is_told() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 5, first=2)
    assert watch.unchanged_for(MEMBER, 6) == 4
    assert watch.unchanged_for(MEMBER._replace(client_id="c2"), 6) == 0


def test_who_was_found_silent_stays_so_though_windows_start_again() -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 5)
    assert not watch.is_silent(MEMBER, 5, 6)
    assert watch.is_silent(MEMBER, 5, 4.5)
    watch.reset()
    watch.observe([MEMBER], 6, GAP)
    assert watch.is_silent(MEMBER, 6, 5)


def test_who_was_found_silent_is_heard_again_with_its_next_beat() -> None:
    watch, later = HeartbeatWatch(), MEMBER._replace(beat=MEMBER.beat + 1)
    watch_until(watch, MEMBER, 5)
    assert watch.is_silent(MEMBER, 5, 5)
    watch.observe([later], 6, GAP)
    assert not watch.is_silent(later, 6, 5)
    watch.observe([MEMBER], 7, GAP)
    assert not watch.is_silent(MEMBER, 7, 5)


@pytest.mark.parametrize("changed", CHANGES)
def test_a_beat_that_was_not_seen_before_is_new(changed: dict[str, object]) -> None:
    watch = HeartbeatWatch()
    watch_until(watch, MEMBER, 5)
    other = MEMBER._replace(**changed)  # type: ignore[arg-type]
    assert watch.unchanged_for(other, 6) == 0


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


def beats(pulses: BeatCounter, *beats: int, state: str = "up") -> list[bool]:
    """Show these beats one after the other; tell at each whether the member lives."""
    member = MEMBER._replace(state=state)
    return [bool(pulses.beating([member._replace(beat=beat)])) for beat in beats]


@pytest.mark.parametrize("state", ["up", "degraded", "silent"])
def test_two_beats_seen_are_a_life_and_one_may_be_a_late_request(state: str) -> None:
    seen = beats(BeatCounter(), 4, 4, 5, 5, 6, 6, state=state)
    assert seen == [False] * 4 + [True] * 2


def test_the_beats_of_another_session_are_counted_anew() -> None:
    pulses = BeatCounter()
    assert beats(pulses, 4, 5) == [False, False]
    assert pulses.beating([MEMBER._replace(session="s2", beat=6)]) == []


def test_who_leaves_is_waited_for() -> None:
    assert not any(beats(BeatCounter(), 4, 5, 6, 7, state="leaving"))


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


def test_a_small_fleet_keeps_the_lease_that_is_configured() -> None:
    assert lease_ms((2.0, 6.0), 1) == 6000
