"""When a shard is read next: fast behind, steady caught up, lazy when long idle."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core.pacing import BACKOFF_LIMIT_SECONDS, CALL_SECONDS, Pacing

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
    assert wait(Pacing(START), payload_bytes=10_000_000, behind=behind) == 5.0
    assert wait(Pacing(START), payload_bytes=3_000_000, behind=behind) == 1.5


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
    pacing = Pacing(START, pace_seconds=2.0)
    assert wait(pacing, behind=behind) == 2.0
    assert pacing.after_failure(START, 0.0) == START + 2.0


def test_no_pace_is_faster_than_aws_allows() -> None:
    assert wait(Pacing(START, pace_seconds=0.01), behind=1) == pytest.approx(
        CALL_SECONDS
    )


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
