"""Test that limits of what a client asks fall at refusals, and grow while needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.congestion import (
    FIRST_BYTES,
    FORGET_SECONDS,
    FULL_PAGE_BYTES,
    MAX_PAUSE_SECONDS,
    MIN_BYTES,
    MIN_PER_SECOND,
    QUICK_SECONDS,
    SLOW_SECONDS,
    UNITS_PER_SECOND,
    CongestionWindow,
    WriteRate,
    commit_interval_seconds,
    share_of,
)
from kinesumer.model.streams import HASH_KEYS, Interval

PAGE = FULL_PAGE_BYTES
GIB = 1 << 30


def test_it_begins_with_four_pages_or_with_the_budget() -> None:
    assert CongestionWindow(GIB).size == FIRST_BYTES == 4 * PAGE
    assert CongestionWindow(2 * PAGE).size == 2 * PAGE
    assert CongestionWindow(1).size == PAGE


def test_quick_answers_double_it_up_to_the_budget() -> None:
    window = CongestionWindow(10 * PAGE)
    for _ in range(4):
        window.answered(PAGE, 0.1, window.size)
    assert window.size == 8 * PAGE
    for _ in range(8):
        window.answered(PAGE, 0.1, window.size)
    assert window.size == 10 * PAGE


def test_answers_that_take_seconds_add_one_page_for_a_whole_window() -> None:
    window = CongestionWindow(GIB)
    for _ in range(4):
        window.answered(PAGE, QUICK_SECONDS, window.size)
    assert 4.8 * PAGE < window.size <= 5 * PAGE


@pytest.mark.parametrize(
    ("seconds", "in_flight", "expected"),
    [
        (SLOW_SECONDS, FIRST_BYTES, FIRST_BYTES),
        (0.1, 2 * PAGE - 1, FIRST_BYTES),
        (0.1, 2 * PAGE, FIRST_BYTES + PAGE),
    ],
)
def test_a_window_grows_only_if_half_of_it_is_used_and_answers_are_not_slow(
    seconds: float, in_flight: int, expected: int
) -> None:
    window = CongestionWindow(GIB)
    window.answered(PAGE, seconds, in_flight)
    assert window.size == expected


def test_a_time_out_halves_the_bytes_in_flight_once_for_requests_sent_before() -> None:
    window = CongestionWindow(GIB)
    for began in (0, 0.5, 29):
        window.timed_out(began, 30 + began, FIRST_BYTES)
    assert window.size == 2 * PAGE
    window.timed_out(30, 60, PAGE)
    assert window.size == window.answer_bytes == PAGE // 2


def test_the_window_has_a_minimum() -> None:
    window = CongestionWindow(GIB)
    for minute in range(20):
        assert window.is_smallest == (window.size == MIN_BYTES)
        window.timed_out(60 * minute, 60 * minute + 30, window.size)
    assert window.is_smallest
    assert window.answer_bytes == MIN_BYTES


def test_below_a_page_it_doubles_until_answers_take_long() -> None:
    window = CongestionWindow(GIB)
    window.timed_out(0, 30, PAGE)
    window.timed_out(30, 60, PAGE // 2)
    window.answered(PAGE // 4, SLOW_SECONDS - 1, PAGE // 4)
    assert window.size == PAGE // 2


def test_a_restart_forgets_a_large_window_and_keeps_a_small_one() -> None:
    window = CongestionWindow(GIB)
    for _ in range(8):
        window.answered(PAGE, 0.1, window.size)
    window.restart()
    assert window.size == FIRST_BYTES
    window.timed_out(0, 30, FIRST_BYTES)
    window.restart()
    assert window.size == 2 * PAGE


@pytest.mark.parametrize("bytes_per_second", [30e3, 0.6e6, 40e6])
@pytest.mark.parametrize("budget", [64 << 20, GIB])
def test_on_any_link_answers_come_to_arrive_in_time_and_use_it(
    bytes_per_second: float, budget: int
) -> None:
    window, now, arrived = CongestionWindow(budget), 0.0, 0
    late = []
    for _ in range(100):  # each round requests a whole window of full answers
        answers = max(1, window.size // PAGE)
        in_flight = answers * window.answer_bytes
        seconds = in_flight / bytes_per_second
        if seconds > 30:
            late.append(now)
            window.timed_out(now, now + 30, in_flight)
            now += 30
            continue
        for _ in range(answers):
            window.answered(window.answer_bytes, seconds, in_flight)
        arrived, now = arrived + in_flight, now + seconds
    assert len(late) <= 7
    assert late == [30.0 * place for place in range(len(late))]
    assert arrived >= 0.99 * bytes_per_second * (now - 30 * len(late))


@given(
    st.lists(
        st.tuples(
            st.booleans(), st.integers(0, 4 * PAGE), st.floats(0, 60), st.integers(0)
        )
    )
)
def test_it_stays_within_its_bounds(events: list[tuple[bool, int, float, int]]) -> None:
    window, now = CongestionWindow(3 * PAGE), 0.0
    for comes, size, seconds, in_flight in events:
        now += seconds
        if comes:
            window.answered(size, seconds, in_flight)
        else:
            window.timed_out(now - seconds, now, in_flight)
        assert MIN_BYTES <= window.size <= 3 * PAGE
        assert window.answer_bytes <= PAGE


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


def _shared(writers: int) -> WriteRate:
    rate = WriteRate(0.0)
    rate.share_among(writers)
    return rate


def test_one_seconds_worth_may_go_at_once() -> None:
    rate, sent = _shared(4), 0
    while not rate.wait_seconds(100.0):
        sent += 1
    assert sent == UNITS_PER_SECOND / 4


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


def test_a_rate_has_a_minimum_and_grows_again_with_the_writes_that_waited() -> None:
    rate, now = _shared(10), 100.0
    for _ in range(20):
        rate.refused(now, now, 0.0)
    assert rate.per_second == MIN_PER_SECOND
    assert rate.wait_seconds(now) <= 1 / MIN_PER_SECOND
    for _ in range(4):
        while wait := rate.wait_seconds(now):
            now += wait
        rate.accepted(now)
    assert rate.per_second > UNITS_PER_SECOND / 20


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
