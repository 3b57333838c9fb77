"""Test that a token bucket allows a burst of one second's amount, and no more."""

from __future__ import annotations

import math

from kinesumer.testing.kinesis.limits import Bucket


def test_a_full_bucket_gives_a_seconds_worth_and_then_refuses() -> None:
    bucket = Bucket(5)
    assert [bucket.take(1, 0.0) for _ in range(6)] == [True] * 5 + [False]


def test_what_was_taken_flows_back_at_the_rate() -> None:
    bucket = Bucket(5)
    for _ in range(5):
        bucket.take(1, 0.0)
    assert not bucket.take(1, 0.1)
    assert bucket.take(1, 0.2)
    assert not bucket.take(1, 0.2)


def test_a_pause_saves_up_no_more_than_one_second() -> None:
    bucket = Bucket(5)
    bucket.take(1, 0.0)
    assert sum(bucket.take(1, 3600.0) for _ in range(10)) == 5


def test_an_amount_above_the_rate_passes_only_from_a_full_bucket() -> None:
    bucket = Bucket(10)
    assert bucket.take(30, 0.0)
    assert not bucket.take(1, 2.9)
    assert bucket.take(1, 3.2)
    assert not bucket.take(30, 3.2)


def test_overdrawing_closes_for_the_whole_amount() -> None:
    bucket = Bucket(2)
    assert bucket.holds(0, 0.0)
    bucket.spend(10)
    assert not bucket.holds(0, 4.9)
    assert bucket.holds(0, 5.1)


def test_an_unlimited_bucket_never_refuses() -> None:
    bucket = Bucket(math.inf)
    assert all(bucket.take(1e12, 0.0) for _ in range(3))
