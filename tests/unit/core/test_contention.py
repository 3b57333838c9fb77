"""Test the detection of a consumer that never slows down, and of its end."""

from __future__ import annotations

import pytest

from kinesumer.core.contention import (
    TRIAL_DOUBLINGS,
    TRIAL_LENGTH_SECONDS,
    TRIAL_READS,
    TRIAL_SECONDS,
    Contention,
)

# The wall time at time 0. It is a multiple of every interval between trials.
WALL = 1_700_000_000.0
SLOW, FAST = 0.4, 2.4


def refuse(contention: Contention, now: float, rate: float = SLOW) -> None:
    contention.refused(now, rate, WALL + now, 0.5)


def contended(now: float = 0.0) -> Contention:
    contention = Contention()
    for _ in range(20):
        refuse(contention, now)
    assert contention.foreign
    return contention


def trial(contention: Contention, at: float) -> float:
    """Begin the trial that is due, and return when its first read comes."""
    first = contention.next_read(at - 0.1, at)
    assert at + 0.5 <= first <= at + 1.3
    assert contention.tries(first)
    return first


def test_many_refusals_at_a_slow_pace_show_a_foreign_consumer() -> None:
    contention = Contention()
    for read in range(40):
        if read % 3:
            refuse(contention, 2.0 * read)
        else:
            contention.answered(2.0 * read, SLOW)
    assert contention.foreign


def test_few_refusals_or_refusals_at_a_fast_pace_show_no_foreign_consumer() -> None:
    contention = Contention()
    for read in range(1000):
        if read % 5:
            contention.answered(2.0 * read, SLOW)
        else:
            refuse(contention, 2.0 * read)
        refuse(contention, 2.0 * read, rate=0.8)
    assert not contention.foreign


def test_one_refusal_proves_nothing() -> None:
    contention = Contention()
    refuse(contention, 0.0)
    assert not contention.foreign
    for _ in range(2):
        refuse(contention, 0.0)
    assert contention.foreign


def test_answered_reads_at_a_fast_pace_show_that_the_foreign_one_has_ended() -> None:
    contention = contended()
    for _ in range(15):
        contention.answered(1.0, FAST)
    assert contention.foreign
    for _ in range(25):
        contention.answered(1.0, FAST)
    assert not contention.foreign


def test_trials_begin_at_ever_larger_multiples_by_the_wall_clock() -> None:
    contention = contended(3.0)
    assert contention.next_read(5.0, 5.4) == 5.4
    begun = []
    now = 5.0
    while now < 2000:
        following = contention.next_read(now, now + 0.4)
        if following > now + 0.5:
            refuse(contention, following, FAST)
            begun.append(now + 0.4)
            following = now + TRIAL_LENGTH_SECONDS + 0.4
        now = following
    apart = [TRIAL_SECONDS * 2**n for n in range(TRIAL_DOUBLINGS + 1)]
    assert len(begun) >= len(apart)
    for at, multiple in zip(begun, apart, strict=False):
        assert at % multiple == pytest.approx(0.0, abs=0.41)
    assert begun[-1] - begun[-2] == pytest.approx(apart[-1], abs=0.5)


def test_a_trial_whose_reads_are_all_answered_ends_the_contention() -> None:
    contention = contended()
    now = trial(contention, TRIAL_SECONDS)
    for _ in range(TRIAL_READS - 1):
        contention.answered(now, FAST)
        assert contention.foreign
        following = contention.next_read(now, now + 0.4)
        assert 0.6 <= following - now <= 0.8
        now = following
    contention.answered(now, FAST)
    assert not contention.foreign
    assert not contention.tries(now)
    assert now < TRIAL_SECONDS + TRIAL_LENGTH_SECONDS


def test_a_trial_with_a_refused_read_has_few_more_reads() -> None:
    contention = contended()
    now = trial(contention, TRIAL_SECONDS)
    reads = 0
    while contention.tries(now) and reads < 10:
        if reads == 1:
            refuse(contention, now, FAST)
        else:
            contention.answered(now, FAST)
        reads += 1
        now = contention.next_read(now, now + 0.02)
    assert 3 <= reads <= 4
    assert contention.foreign
    assert contention.next_read(now, now + 0.02) == now + 0.02


def test_trials_are_frequent_again_when_another_foreign_consumer_begins() -> None:
    contention = contended()
    for begins in (20.0, 40.0, 80.0):
        now = trial(contention, begins)
        refuse(contention, now, FAST)
    for _ in range(40):
        contention.answered(100.0, FAST)
    assert not contention.foreign
    for _ in range(20):
        refuse(contention, 105.0)
    trial(contention, 120.0)
