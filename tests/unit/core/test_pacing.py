"""When a shard is read next: fast behind, steady caught up, lazy when long idle."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.fair_share import (
    CALL_SECONDS,
    CONTENDED_RETRY_LEAST_SECONDS,
    CONTENDED_RETRY_SECONDS,
    FEWEST_READS_PER_SECOND,
    FIRST_RETRY_SECONDS,
    HALF_READS_PER_SECOND,
    PAGE_BYTES,
    RETRY_LEAST_SECONDS,
    RETRY_SECONDS,
    SHARED_PAGE_BYTES,
    SIXTH_READS_PER_SECOND,
    Share,
)
from kinesumer.core.pacing import BACKOFF_LIMIT_SECONDS, RETRY_FOR_SECONDS, Pacing

START = 1000.0


def wait(
    pacing: Pacing,
    at: float = START,
    *,
    records: int = 1,
    payload_bytes: int = 100,
    behind: int = 0,
) -> float:
    """Return how long after the start of one read the next may start."""
    following = pacing.after_page(
        at, records=records, payload_bytes=payload_bytes, millis_behind=behind
    )
    return following - at


def test_a_shard_that_is_behind_is_read_five_times_a_second() -> None:
    assert wait(Pacing(START), behind=1) == pytest.approx(CALL_SECONDS)


@pytest.mark.parametrize("behind", [0, 5000])
def test_a_large_page_is_paid_for_at_two_megabytes_a_second(behind: int) -> None:
    assert wait(Pacing(START), payload_bytes=1_000_000, behind=behind) == 0.5
    assert wait(Pacing(START), payload_bytes=2_000_000, behind=behind) == 1.0


@pytest.mark.parametrize("behind", [0, 5000])
def test_after_more_than_a_second_can_give_the_shard_gets_time_to_recover(
    behind: int,
) -> None:
    assert wait(Pacing(START), payload_bytes=10_000_000, behind=behind) == 6.0
    assert wait(Pacing(START), payload_bytes=3_000_000, behind=behind) == 2.5


def test_a_caught_up_shard_is_read_every_quarter_of_a_second() -> None:
    assert wait(Pacing(START)) == 0.25


def test_a_shard_that_was_quiet_for_ten_seconds_is_still_read_as_often() -> None:
    assert wait(Pacing(START), START + 10, records=0) == 0.25


def test_a_long_idle_shard_is_gradually_read_once_a_second() -> None:
    pacing = Pacing(START)
    waits = [wait(pacing, START + idle, records=0) for idle in range(0, 40)]
    assert waits == sorted(waits)
    assert max(b - a for a, b in pairwise(waits)) < 0.1
    assert waits[-1] == 1.0


def test_one_record_ends_idleness() -> None:
    pacing = Pacing(START)
    assert wait(pacing, START + 900, records=0) == 1.0
    assert wait(pacing, START + 901) == 0.25
    assert wait(pacing, START + 902, records=0) == 0.25


def test_an_idle_shard_that_is_behind_is_read_fast() -> None:
    assert wait(Pacing(START), START + 900, records=0, behind=1) == pytest.approx(
        CALL_SECONDS
    )


@pytest.mark.parametrize("behind", [0, 1])
def test_a_streams_own_pace_is_never_exceeded(behind: int) -> None:
    pacing = Pacing(START, min_read_interval_seconds=2.0)
    assert wait(pacing, behind=behind) == 2.0
    assert pacing.after_failure(START, 0.0) == START + 2.0


def test_no_pace_is_faster_than_aws_allows() -> None:
    assert wait(
        Pacing(START, min_read_interval_seconds=0.01), behind=1
    ) == pytest.approx(CALL_SECONDS)


def test_failures_in_a_row_double_the_longest_wait_up_to_its_limit() -> None:
    pacing = Pacing(START)
    longest = [pacing.after_failure(0.0, 1.0) for _ in range(2000)]
    assert longest[:5] == [0.5, 1.0, 2.0, 4.0, BACKOFF_LIMIT_SECONDS]
    assert set(longest[5:]) == {BACKOFF_LIMIT_SECONDS}


def test_a_success_forgets_failures() -> None:
    pacing = Pacing(START)
    for _ in range(5):
        pacing.after_failure(START, 0.5)
    wait(pacing)
    assert pacing.after_failure(0.0, 1.0) == 0.5


@given(st.floats(0, 1), st.integers(0, 20))
def test_jitter_spreads_tries_over_the_whole_wait(jitter: float, failures: int) -> None:
    pacing = Pacing(START)
    for _ in range(failures):
        pacing.after_failure(START, 1.0)
    longest = min(0.5 * 2**failures, BACKOFF_LIMIT_SECONDS)
    assert pacing.after_failure(0.0, jitter) == max(CALL_SECONDS, jitter * longest)


# --- shared shards -------------------------------------------------------------------


def test_a_refusal_leaves_a_reader_at_most_half_of_the_shard() -> None:
    share = Share()
    share.cut(START, 4.0)
    assert share.rate == HALF_READS_PER_SECOND
    assert not share.whole


def test_a_fast_reader_gives_up_a_larger_part_than_a_slow_one() -> None:
    parts = []
    for used in (0.9, 1.2, 1.6, 2.0):
        share = Share()
        share.cut(START, used)
        parts.append(1 - share.rate / used)
    assert parts == sorted(parts)
    assert parts[0] == pytest.approx(0.11, abs=0.05)
    assert parts[-1] == pytest.approx(0.25)


def test_a_cut_is_given_time_to_show_its_effect() -> None:
    share = Share()
    share.cut(START, 2.0)
    share.cut(START + 0.9, 2.0)
    assert share.rate == 1.5
    share.cut(START + 1.1, 2.0)
    assert share.rate < 1.5


def test_a_share_never_gets_smaller_than_one_in_twelve() -> None:
    share = Share()
    rates = []
    for second in range(100):
        share.cut(START + 10 * second, 4.0)
        rates.append(share.rate)
    assert rates == sorted(rates, reverse=True)
    assert SIXTH_READS_PER_SECOND in rates
    assert share.rate == FEWEST_READS_PER_SECOND


def test_a_share_may_be_given_a_greater_least_rate() -> None:
    share = Share(fewest=0.6)
    for second in range(100):
        share.cut(START + 10 * second, 4.0)
    assert share.rate == 0.6


def test_less_than_a_sixth_grows_at_once_but_only_up_to_it() -> None:
    share = Share()
    for second in range(100):
        share.cut(START + 10 * second, 4.0)
    share.grow(10.0)
    assert share.rate == pytest.approx(FEWEST_READS_PER_SECOND * 1.15)
    for _ in range(10):
        share.grow(10.0)
    assert share.rate == SIXTH_READS_PER_SECOND
    share.grow(10.0)
    assert share.rate == SIXTH_READS_PER_SECOND


def test_a_share_is_kept_for_a_long_time_then_grows_ever_faster() -> None:
    share = Share()
    share.cut(START, 1.2)
    kept = share.rate
    rates = []
    while not share.whole:
        share.grow(10.0)
        rates.append(share.rate)
    assert rates[:8] == [kept] * 8
    steps = [after - before for before, after in pairwise(rates[8:-1])]
    assert steps == sorted(steps)
    assert len(rates) <= 16
    assert share.rate == pytest.approx(1 / CALL_SECONDS)
    share.grow(10.0)
    assert share.whole


def test_the_share_of_a_reader_that_does_not_need_it_does_not_grow() -> None:
    pacing = Pacing(START, min_read_interval_seconds=2.0)
    pacing.after_throttle(START, START, 0.5)
    for _ in range(1000):
        wait(pacing)
    assert pacing.page_records(10**9) < PAGE_BYTES / 100


def test_a_read_that_was_refused_once_is_tried_again_after_a_moment() -> None:
    for jitter in (0.0, 0.5, 1.0):
        pacing = Pacing(START)
        again = pacing.after_throttle(START, START, jitter) - START
        assert CALL_SECONDS <= again + 1e-6
        assert again <= FIRST_RETRY_SECONDS + 1e-6
        assert wait(pacing) == pytest.approx(1 / HALF_READS_PER_SECOND)


def test_tries_in_a_row_come_ever_sooner() -> None:
    pacing = Pacing(START)
    tries = [pacing.after_throttle(START, START, 1.0) - START for _ in range(30)]
    assert all(after <= before + 1e-6 for before, after in pairwise(tries))
    assert tries[2] <= RETRY_SECONDS
    assert tries[-1] == pytest.approx(RETRY_LEAST_SECONDS)


def test_a_read_refused_three_times_in_a_row_is_soon_asked_for_at_any_rate() -> None:
    pacing = Pacing(START)
    first, second, third = (
        pacing.after_throttle(START, START, 1.0) - START for _ in range(3)
    )
    assert first == second >= CALL_SECONDS
    assert third <= RETRY_SECONDS


def test_without_any_read_for_long_it_pauses_before_it_goes_on() -> None:
    pacing = Pacing(START)
    now, waits = START, []
    while now < START + 120:
        following = pacing.after_throttle(now, now, 1.0)
        waits.append(following - now)
        now = following
    pauses = [pause for pause in waits if pause >= 0.5 + 1e-9]
    assert pauses[0] <= 1.0
    assert max(pauses) == BACKOFF_LIMIT_SECONDS
    busy = 120 / (BACKOFF_LIMIT_SECONDS + RETRY_FOR_SECONDS)
    assert len([pause for pause in pauses if pause >= 4]) >= busy / 2


def test_a_pace_of_the_users_own_holds_for_refused_reads_too() -> None:
    pacing = Pacing(START, min_read_interval_seconds=2.0)
    for _ in range(50):
        assert pacing.after_throttle(START, START, 0.0) == START + 2.0


def test_a_page_is_as_large_as_does_no_harm() -> None:
    pacing = Pacing(START)
    assert pacing.page_records(10_000) == 10_000
    wait(pacing, records=10, payload_bytes=10_000)
    assert pacing.page_records(10_000) == PAGE_BYTES / 1000
    assert pacing.page_records(100) == 100
    pacing.after_throttle(START, START, 0.5)
    assert pacing.page_records(10_000) == SHARED_PAGE_BYTES / 1000
    wait(pacing, records=1, payload_bytes=5_000_000)
    assert pacing.page_records(10_000) == 1
    wait(pacing, records=0, payload_bytes=0)
    assert pacing.page_records(10_000) == 1


# --- beside a foreign consumer -------------------------------------------------------


NO_TRIAL_SOON = 5.0
"""With the wall clock so much ahead, no trial begins in the next ten seconds."""


def contended() -> tuple[Pacing, float]:
    """Return the pacing of a reader that was refused its reads, and the time."""
    pacing, now = Pacing(START), START
    waits: list[float] = []
    while len(waits) < 10 or waits[-1] > 1:
        assert len(waits) < 40
        pacing.after_throttle(now, now + NO_TRIAL_SOON, 0.5)
        waits.append(wait(pacing, now))
        now += waits[-1]
    return pacing, now


def test_beside_a_foreign_consumer_a_reader_takes_half_of_the_shard() -> None:
    pacing, now = contended()
    waits = []
    for _ in range(4):
        waits.append(wait(pacing, now))
        now += waits[-1]
    assert waits[-1] == pytest.approx(1 / HALF_READS_PER_SECOND)


def test_a_delayed_read_is_followed_sooner_by_the_next_one() -> None:
    pacing, now = contended()
    for _ in range(4):
        now += wait(pacing, now)
    assert wait(pacing, now + 0.1) == pytest.approx(1 / HALF_READS_PER_SECOND - 0.1)
    assert wait(pacing, now + 9.0) == 0.25
    assert wait(pacing, now + 9.25) == 0.25
    assert wait(pacing, now + 9.5) == pytest.approx(3 / HALF_READS_PER_SECOND - 0.9)


def test_beside_a_foreign_consumer_large_pages_are_paid_for_from_half_the_bytes() -> (
    None
):
    pacing, now = contended()
    for _ in range(4):
        now += wait(pacing, now)
    assert wait(pacing, now, payload_bytes=500_000) == pytest.approx(0.25 / 0.492)


def test_beside_a_foreign_consumer_the_longest_wait_makes_the_quickest_tries() -> None:
    pacing, now = contended()
    wait(pacing, now)
    tries = [
        pacing.after_throttle(now + since, now + since, 1.0) - (now + since)
        for since in (0.1, 0.5, 1.0, 3.0)
    ]
    assert tries[0] == pytest.approx(CONTENDED_RETRY_SECONDS)
    assert all(after < before for before, after in pairwise(tries))
    assert tries[-1] == pytest.approx(CONTENDED_RETRY_LEAST_SECONDS)


def test_after_a_foreign_consumer_has_ended_a_reader_shares_with_apps_again() -> None:
    pacing, now = contended()
    waits = []
    for _ in range(80):
        waits.append(wait(pacing, now))
        now += waits[-1]
    assert 1 / SIXTH_READS_PER_SECOND in waits


def test_a_reader_with_a_pace_of_its_own_never_contends() -> None:
    pacing, now = Pacing(START, min_read_interval_seconds=2.0), START
    for _ in range(200):
        assert pacing.after_throttle(now, now, 0.0) == now + 2.0
        assert wait(pacing, now + 2.0) >= 2.0
        now += 4.5
