"""Test when a shard is read next, and how a reader's share of it falls and grows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kinesumer.core.pacing import (
    BACKOFF,
    CALL_SECONDS,
    CUT,
    FEWEST_READS_PER_SECOND,
    GROWTH_READS_PER_SECOND,
    PAGE_BYTES,
    RETRY_FOR_SECONDS,
    SHARED_PAGE_BYTES,
    Pacing,
    Share,
)

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
    assert longest[:5] == [0.5, 1.0, 2.0, 4.0, BACKOFF.longest_seconds]
    assert set(longest[5:]) == {BACKOFF.longest_seconds}
    wait(pacing)
    assert pacing.after_failure(0.0, 1.0) == 0.5
    spread = [Pacing(START).after_failure(0.0, jitter) for jitter in (0.0, 0.8)]
    assert spread == [CALL_SECONDS, 0.4]
    own_pace = Pacing(START, min_read_interval_seconds=2.0)
    assert own_pace.after_failure(START, 0.0) == START + 2.0


# --- shared shards -------------------------------------------------------------------


def test_a_reader_takes_an_equal_part_of_the_shard_beside_known_apps() -> None:
    pacing = Pacing(START)
    pacing.share_among(4)
    assert wait(pacing) == pytest.approx(4 * CALL_SECONDS)
    pacing.share_among(1)
    assert wait(pacing) == 0.25


def test_a_refusal_slows_down_what_the_reader_really_reads() -> None:
    pacing = Pacing(START)
    wait(pacing)  # a caught-up shard is read four times a second
    pacing.after_throttle(START, 0.5)
    assert wait(pacing) == pytest.approx(0.25 / CUT)
    pacing.after_throttle(START + 10, 0.5)
    pacing.after_throttle(START + 11, 0.5)  # the same read
    assert wait(pacing, START + 11) == pytest.approx(0.25 / CUT**2, rel=0.01)


def test_the_share_of_a_reader_that_does_not_need_it_does_not_grow() -> None:
    pacing = Pacing(START, min_read_interval_seconds=2.0)
    pacing.after_throttle(START, 0.5)
    for _ in range(1000):
        wait(pacing)
    assert pacing.page_records(10**9) < PAGE_BYTES / 100


def test_without_any_read_for_long_it_pauses_before_it_goes_on() -> None:
    pacing = Pacing(START)
    now, waits = START, []
    while now < START + 120:
        following = pacing.after_throttle(now, 1.0)
        waits.append(following - now)
        now = following
    pauses = [pause for pause in waits if pause >= 0.5 + 1e-9]
    assert pauses[0] <= 1.0
    assert max(pauses) == BACKOFF.longest_seconds
    busy = 120 / (BACKOFF.longest_seconds + RETRY_FOR_SECONDS)
    assert len([pause for pause in pauses if pause >= 4]) >= busy / 2


@pytest.mark.parametrize(
    ("interval", "jitter", "expected"),
    [(0.2, 0.0, 0.02), (0.2, 0.5, 0.06), (0.2, 1.0, 0.1), (2.0, 0.0, 2.0)],
)
def test_a_refused_read_is_tried_again_after_a_moment_or_at_the_users_own_pace(
    interval: float, jitter: float, expected: float
) -> None:
    pacing = Pacing(START, min_read_interval_seconds=interval)
    for _ in range(50):
        assert pacing.after_throttle(START, jitter) - START == pytest.approx(expected)


def test_a_page_is_as_large_as_does_no_harm() -> None:
    pacing = Pacing(START)
    assert pacing.page_records(10_000) == 10_000
    wait(pacing, records=10, payload_bytes=10_000)
    assert pacing.page_records(10_000) == PAGE_BYTES / 1000
    assert pacing.page_records(100) == 100
    pacing.after_throttle(START, 0.5)
    assert pacing.page_records(10_000) == SHARED_PAGE_BYTES / 1000
    wait(pacing, records=1, payload_bytes=5_000_000)
    assert pacing.page_records(10_000) == 1
    wait(pacing, records=0, payload_bytes=0)
    assert pacing.page_records(10_000) == 1


def test_a_reader_alone_keeps_its_own_limits_and_a_further_one_starts_at_once() -> None:
    pacing = Pacing(START, 0.01, 10_000_000)
    assert wait(pacing, behind=1) == pytest.approx(0.01)
    assert wait(pacing, payload_bytes=5_000_000, behind=1) == 0.5
    assert not pacing.is_shared
    assert pacing.starts_at(START) == START


def test_a_further_reader_of_a_shared_shard_waits_as_the_last_one_would() -> None:
    pacing = Pacing(START, 0.01, 10_000_000)
    pacing.after_throttle(START, 0.5)
    assert pacing.is_shared
    assert wait(pacing, payload_bytes=1_000_000, behind=1) > 0.5
    following = pacing.after_page(START, records=1, payload_bytes=100, millis_behind=1)
    assert following > START + CALL_SECONDS
    assert pacing.starts_at(START) == following
    assert pacing.starts_at(following + 1) == following + 1


ALL = 1 / CALL_SECONDS


def share(apps: int = 1, cuts: int = 0) -> Share:
    share = Share()
    share.share_among(apps)
    for number in range(cuts):
        share.cut(START + 10 * number, used=ALL)
    return share


def test_a_share_follows_the_number_of_apps() -> None:
    changing = share(3)
    changing.share_among(2)
    assert changing.rate == pytest.approx(ALL / 2)
    changing.cut(START, used=1.5)
    changing.share_among(1)
    assert changing.rate == pytest.approx(CUT * 1.5)  # others may read, too
    changing.share_among(12)
    assert changing.rate == pytest.approx(ALL / 12)


def test_a_refusal_cuts_no_more_than_the_whole_rate() -> None:
    fast = share()
    fast.cut(START, used=100.0)
    assert fast.rate == pytest.approx(CUT * ALL)


def test_a_cut_is_given_time_to_show_its_effect() -> None:
    cut = share()
    cut.cut(START, used=2.0)
    cut.cut(START + 0.6, used=2.0)
    assert cut.rate == pytest.approx(CUT * 2.0)
    cut.cut(START + 0.7, used=2.0)
    assert cut.rate == pytest.approx(CUT**2 * 2.0)


def test_refusals_leave_a_share_at_least_its_minimum_or_its_equal_part() -> None:
    assert share(cuts=100).rate == FEWEST_READS_PER_SECOND
    assert share(apps=12, cuts=100).rate == pytest.approx(ALL / 12)


def test_a_share_grows_with_time_up_to_its_equal_part() -> None:
    growing = share(apps=2, cuts=1)
    cut = growing.rate
    growing.grow(10.0)
    assert growing.rate == pytest.approx(cut + 10 * GROWTH_READS_PER_SECOND)
    growing.grow(1000.0)
    assert growing.rate == pytest.approx(ALL / 2)


def test_pages_are_small_and_paid_for_from_the_share_while_others_read_too() -> None:
    assert share(apps=2).page_bytes == SHARED_PAGE_BYTES
    assert share(apps=2).pause_seconds(1_000_000) == pytest.approx(1.0)
    assert share(apps=2).pause_seconds(0) == pytest.approx(2 * CALL_SECONDS)
    alone = share(cuts=1)
    assert alone.page_bytes == SHARED_PAGE_BYTES
    alone.grow(1000.0)
    assert alone.page_bytes == PAGE_BYTES
