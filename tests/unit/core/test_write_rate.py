"""Test that the write rate starts fair, falls at refusals, and grows while needed."""

from __future__ import annotations

import pytest

from kinesumer.core.write_rate import (
    FORGET_SECONDS,
    MAX_PAUSE_SECONDS,
    MIN_PER_SECOND,
    UNITS_PER_SECOND,
    WriteRate,
    commit_interval_seconds,
    share_of,
)
from kinesumer.model.streams import HASH_KEYS, Interval


def send(rate: WriteRate, now: float, seconds: float) -> tuple[int, float]:
    """Send as many writes as a period permits. Return their number, and its end."""
    end, sent = now + seconds, 0
    while (wait := rate.wait_seconds(now)) + now < end:
        if wait:
            now += wait
        else:
            sent += 1
            rate.accepted(now)
    return sent, end


def test_one_seconds_worth_may_go_at_once() -> None:
    rate = _shared(4)
    sent = 0
    while not rate.wait_seconds(100.0):
        sent += 1
    assert sent == UNITS_PER_SECOND / 4


def _shared(writers: int) -> WriteRate:
    rate = WriteRate(0.0)
    rate.share_among(writers)
    return rate


def test_waiting_writes_make_the_rate_grow_up_to_the_partitions_limit() -> None:
    rate = _shared(10)
    first, now = send(rate, 100.0, 1.0)
    assert first <= 2.3 * UNITS_PER_SECOND / 10
    before = rate.per_second
    _, now = send(rate, now, 4.0)
    assert before < rate.per_second < UNITS_PER_SECOND / 4
    send(rate, now, 60.0)
    assert rate.per_second == UNITS_PER_SECOND


def test_writes_that_do_not_wait_leave_the_rate_unchanged() -> None:
    rate = _shared(10)
    for second in range(100, 200):
        assert rate.wait_seconds(second) == 0.0
        rate.accepted(second)
    assert rate.per_second == UNITS_PER_SECOND / 10


def test_of_writes_under_way_together_one_refusal_counts() -> None:
    rate = _shared(10)
    assert rate.wait_seconds(100.0) == 0.0
    rate.refused(100.0, 100.01, 0.5)
    rate.refused(100.0, 100.02, 0.5)
    assert rate.per_second == UNITS_PER_SECOND / 20
    rate.refused(100.01, 100.03, 0.5)
    assert rate.per_second == UNITS_PER_SECOND / 40


def test_after_a_refusal_writes_pause() -> None:
    rate = _shared(10)
    rate.wait_seconds(100.0)
    rate.refused(100.0, 100.0, 0.5)
    pause = 0.5 * MAX_PAUSE_SECONDS
    assert rate.wait_seconds(100.0) == pytest.approx(pause)
    # The refusal cancelled the burst, so only as many writes are sent as the rate
    # permits in the time of the pause.
    sent, _ = send(rate, 100.0 + pause, 0.001)
    assert sent == int(pause * rate.per_second)


def test_a_rate_has_a_minimum() -> None:
    rate = _shared(1000)
    for now in range(100, 120):
        rate.refused(now, now, 1.0)
    assert rate.per_second == MIN_PER_SECOND
    assert rate.wait_seconds(121.0) <= 1 / MIN_PER_SECOND


def test_an_idle_rate_is_forgotten() -> None:
    rate = _shared(10)
    rate.wait_seconds(100.0)
    rate.refused(100.0, 100.0, 0.0)
    rate.wait_seconds(100.0 + FORGET_SECONDS)
    assert rate.per_second == UNITS_PER_SECOND / 20
    rate.wait_seconds(100.1 + FORGET_SECONDS)
    assert rate.per_second == UNITS_PER_SECOND / 10


def test_commits_of_all_clients_stay_within_the_partitions_limit() -> None:
    assert commit_interval_seconds({}, {}) == 0
    assert commit_interval_seconds({"a": 800, "b": 80}, {"a": 1.0, "b": 0.5}) == 1.0
    assert commit_interval_seconds({"a": 800, "b": 800}, {"a": 1.0, "b": 0.1}) == 10.0


def test_a_client_has_a_part_of_the_commits_as_of_the_hash_keys() -> None:
    half = HASH_KEYS // 2
    range_ = (Interval("a", 0, half - 1), Interval("b", half, HASH_KEYS - 1))
    assert share_of("a", range_, 10) == 0.5
    assert share_of("c", range_, 10) == 0.1
