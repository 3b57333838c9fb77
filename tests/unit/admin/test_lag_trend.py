"""Estimates of unread records, and trends of lags."""

from __future__ import annotations

import pytest

from kinesumer.admin.lag_trend import (
    MAX_RECORDS_PER_SECOND,
    ArrivalSample,
    LagSample,
    estimate_records,
    find_trend,
    is_at_tip,
    page_millis_behind,
    sample_page,
)
from kinesumer.model.positions import Position
from kinesumer.model.records import Page, Record

HERE, THERE = Position("100"), Position("200")


def look(at: float, millis: int | None, after: Position = HERE) -> LagSample:
    return LagSample(at, millis, after)


def page(records: int, millis_behind: int, *, ends: bool = False) -> Page:
    made = [Record(str(number), b"12345678") for number in range(records)]
    return Page(made, None if ends else "next", millis_behind)


def test_a_sample_covers_the_time_from_where_it_began_to_where_the_page_ends() -> None:
    taken = sample_page(page(100, 40_000), since=50.0, now=100.0)
    assert taken == ArrivalSample(100, 800, 10.0)
    assert taken.records_per_second == 10.0
    assert taken.bytes_per_second == 80.0


def test_a_rate_is_capped_at_the_limit_of_kinesis() -> None:
    assert ArrivalSample(900, 9000, 0.0).records_per_second == MAX_RECORDS_PER_SECOND
    assert ArrivalSample(0, 0, 0.0).bytes_per_second == 0.0


def test_a_steady_stream_is_estimated_exactly() -> None:
    steady = [ArrivalSample(100, 0, 10.0)] * 3
    assert estimate_records(7, 60_000, steady) == 7 + 600


def test_rates_between_samples_are_interpolated() -> None:
    rising = [
        ArrivalSample(0, 0, 1.0),
        ArrivalSample(10, 0, 1.0),
        ArrivalSample(20, 0, 1.0),
    ]
    assert estimate_records(0, 10_000, rising) == 100


@pytest.mark.parametrize(
    ("read", "at_tip"),
    [
        (page(3, 0), True),
        (page(3, 5), False),
        (page(0, 5), False),
        (page(3, 5, ends=True), True),
    ],
)
def test_nothing_follows_a_page_at_the_tip_or_at_the_shards_end(
    read: Page, at_tip: bool
) -> None:
    assert is_at_tip(read) is at_tip


def test_a_lag_within_one_commit_interval_is_caught_up() -> None:
    going = find_trend(look(0, 1_000), look(10, 5_000, THERE))
    assert (going.trend, going.seconds_to_catch_up) == ("caught up", 0.0)


def test_a_falling_lag_says_when_it_will_be_caught_up() -> None:
    going = find_trend(look(0, 120_000), look(10, 100_000, THERE))
    assert going == ("falling", -2000.0, 50.0)


def test_a_lag_that_grows_while_positions_move_is_growing() -> None:
    assert find_trend(look(0, 50_000), look(10, 57_000, THERE)) == (
        "growing",
        700.0,
        None,
    )


def test_a_lag_without_progress_is_stalled() -> None:
    assert find_trend(look(0, 50_000), look(10, 60_000)) == ("stalled", 1000.0, None)


def test_a_change_within_one_commit_is_none() -> None:
    assert find_trend(look(0, 50_000), look(60, 47_000, THERE)).trend == "steady"


def test_one_sample_shows_no_trend() -> None:
    assert find_trend(None, look(10, 60_000)) == ("unknown", None, None)
    assert find_trend(look(0, None), look(10, 60_000)) == ("unknown", None, None)


def test_a_lost_record_has_no_lag() -> None:
    assert find_trend(look(0, 50_000), look(10, None)).trend == "unknown"


def test_a_lag_is_the_age_of_the_first_record_that_waits() -> None:
    waiting = Page([Record("1", b"", None, 70.0), Record("2", b"", None, 90.0)], "n", 0)
    assert page_millis_behind(waiting, now=100.0) == 30_000
    assert (
        page_millis_behind(waiting._replace(millis_behind=40_000), now=100.0) == 40_000
    )
    assert page_millis_behind(page(0, 5), now=100.0) == 5
    assert page_millis_behind(page(1, 5), now=100.0) == 5
