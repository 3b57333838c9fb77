"""Test a shard's log of records: limits of pages, trimming, and lookups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.testing.embedded_aws.kinesis.shards import RecordLog


def log_of(sizes: list[int]) -> RecordLog:
    log = RecordLog()
    for number, size in enumerate(sizes):
        log.append(number * 10, float(number), size, b"%d" % number)
    return log


def test_a_page_ends_before_the_record_that_no_longer_fits() -> None:
    log = log_of([4, 4, 4])
    assert log.page_end(0, 10, 8) == 2
    assert log.page_end(0, 10, 11) == 2
    assert log.page_end(0, 1, 100) == 1


def test_a_page_has_at_least_one_record_however_large() -> None:
    assert log_of([50, 1]).page_end(0, 10, 8) == 1


def test_a_page_behind_the_last_record_is_empty() -> None:
    log = log_of([1])
    assert log.page_end(1, 10, 10) == 1
    assert log.join(1, 1) == b""
    assert log.size(1, 1) == 0


def test_trimmed_records_are_never_found_again() -> None:
    log = log_of([1] * 10)
    log.trim(6.0)
    assert log.join(log.after(-1), len(log)) == b"6,7,8,9"
    assert log.join(log.since(0.0), len(log)) == b"6,7,8,9"
    assert log.join(log.after(70), len(log)) == b"8,9"


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=40),
    st.integers(0, 45),
    st.integers(1, 30),
)
def test_pages_are_the_same_after_trimming(
    sizes: list[int], cut: int, budget: int
) -> None:
    whole, trimmed = log_of(sizes), log_of(sizes)
    trimmed.trim(float(cut))
    for log in (whole, trimmed):
        log.append(10_000, 10_000.0, 3, b"last")
    start = whole.after(cut * 10 - 1)
    end = whole.page_end(start, 10, budget)
    other = trimmed.after(-1)
    other_end = trimmed.page_end(other, 10, budget)
    assert whole.join(start, end) == trimmed.join(other, other_end)
    assert whole.size(start, end) == trimmed.size(other, other_end)
