"""Test that a reader that is behind reads often, and one of an idle shard rarely."""

from __future__ import annotations

from itertools import pairwise

import pytest

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
    """Return the time from the start of a read to the earliest start of the next."""
    following = pacing.after_page(
        at, records=records, payload_bytes=payload_bytes, millis_behind=behind
    )
    return following - at


@pytest.mark.parametrize(
    ("interval", "idle_seconds", "behind", "expected"),
    [
        (0.2, 0, 1, CALL_SECONDS),  # behind: five times a second
        (0.2, 900, 1, CALL_SECONDS),
        (0.01, 0, 1, CALL_SECONDS),  # AWS allows no more
        (0.2, 0, 0, 0.25),  # caught up
        (0.2, 10, 0, 0.25),
        (0.2, 20, 0, 1.0),
        (2.0, 0, 0, 2.0),  # at the pace that the user has set
        (2.0, 0, 1, 2.0),
        (2.0, 900, 0, 2.0),
    ],
)
def test_a_read_waits_for_the_pace_of_the_stream_and_for_records(
    interval: float, idle_seconds: float, behind: int, expected: float
) -> None:
    pacing = Pacing(START, min_read_interval_seconds=interval)
    records = 0 if idle_seconds else 1
    waits = wait(pacing, START + idle_seconds, records=records, behind=behind)
    assert waits == pytest.approx(expected)


@pytest.mark.parametrize("behind", [0, 5000])
@pytest.mark.parametrize(
    ("megabytes", "expected"),
    # After more than two megabytes, the shard gets another second to recover.
    [(1, 0.5), (2, 1.0), (3, 2.5), (10, 6.0)],
)
def test_a_large_page_is_paid_for_at_two_megabytes_a_second(
    megabytes: int, expected: float, behind: int
) -> None:
    page = megabytes * 1_000_000
    assert wait(Pacing(START), payload_bytes=page, behind=behind) == expected


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


def test_failures_in_a_row_double_the_longest_wait_until_a_success() -> None:
    pacing = Pacing(START)
    longest = [pacing.after_failure(0.0, 1.0) for _ in range(2000)]
    assert longest[:5] == [0.5, 1.0, 2.0, 4.0, BACKOFF_LIMIT_SECONDS]
    assert set(longest[5:]) == {BACKOFF_LIMIT_SECONDS}
    wait(pacing)
    assert pacing.after_failure(0.0, 1.0) == 0.5


def test_jitter_spreads_tries_over_the_whole_wait() -> None:
    first = [Pacing(START).after_failure(0.0, jitter) for jitter in (0.0, 0.8, 1.0)]
    assert first == [CALL_SECONDS, 0.4, 0.5]
    own_pace = Pacing(START, min_read_interval_seconds=2.0)
    assert own_pace.after_failure(START, 0.0) == START + 2.0


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


def cut_often(share: Share) -> list[float]:
    """Cut a share until it is as small as possible. Return the rates."""
    rates = []
    for second in range(100):
        share.cut(START + 10 * second, 4.0)
        rates.append(share.rate)
    return rates


def test_a_share_never_gets_smaller_than_one_in_twelve_or_than_its_minimum() -> None:
    rates = cut_often(Share())
    assert rates == sorted(rates, reverse=True)
    assert SIXTH_READS_PER_SECOND in rates
    assert rates[-1] == FEWEST_READS_PER_SECOND
    assert cut_often(Share(fewest=0.6))[-1] == 0.6


def test_less_than_a_sixth_grows_at_once_but_only_up_to_it() -> None:
    share = Share()
    cut_often(share)
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


def test_from_the_third_in_a_row_tries_come_ever_sooner() -> None:
    pacing = Pacing(START)
    tries = [pacing.after_throttle(START, START, 1.0) - START for _ in range(30)]
    assert all(after <= before + 1e-6 for before, after in pairwise(tries))
    assert tries[0] == tries[1] >= CALL_SECONDS
    assert tries[2] <= RETRY_SECONDS
    assert tries[-1] == pytest.approx(RETRY_LEAST_SECONDS)


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


# If the wall clock is ahead by this much, no trial begins in the next ten seconds.
NO_TRIAL_SOON = 5.0


def contended(reads: int = 0) -> tuple[Pacing, float]:
    """Return a reader's pacing after refusals and then some reads, and the time."""
    pacing, now = Pacing(START), START
    waits: list[float] = []
    while len(waits) < 10 or waits[-1] > 1:
        assert len(waits) < 40
        pacing.after_throttle(now, now + NO_TRIAL_SOON, 0.5)
        waits.append(wait(pacing, now))
        now += waits[-1]
    for _ in range(reads):
        now += wait(pacing, now)
    return pacing, now


def test_beside_a_foreign_consumer_a_reader_takes_half_of_the_shard() -> None:
    pacing, now = contended(reads=3)
    assert wait(pacing, now) == pytest.approx(1 / HALF_READS_PER_SECOND)


def test_a_delayed_read_is_followed_sooner_by_the_next_one() -> None:
    pacing, now = contended(reads=4)
    assert wait(pacing, now + 0.1) == pytest.approx(1 / HALF_READS_PER_SECOND - 0.1)
    assert wait(pacing, now + 9.0) == 0.25
    assert wait(pacing, now + 9.25) == 0.25
    assert wait(pacing, now + 9.5) == pytest.approx(3 / HALF_READS_PER_SECOND - 0.9)


def test_beside_a_foreign_consumer_large_pages_are_paid_from_half_the_bytes() -> None:
    pacing, now = contended(reads=4)
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
