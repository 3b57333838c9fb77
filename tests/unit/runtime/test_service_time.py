"""Test the bounds of the time in Kinesis that follow from its answers."""

from __future__ import annotations

import math

from kinesumer.runtime.service_time import DRIFT, ClockBounds


def test_an_answer_bounds_the_clock_by_its_second_and_the_time_it_took() -> None:
    bounds = ClockBounds()
    assert (bounds.earliest(5.0), bounds.latest(5.0)) == (-math.inf, math.inf)
    bounds.observe_date(1000.0, asked_at=10.0, now=10.5)
    assert (bounds.earliest(10.5), bounds.latest(10.5)) == (1000.0, 1001.5)


def test_bounds_widen_as_clocks_drift() -> None:
    bounds = ClockBounds()
    bounds.observe_date(1000.0, asked_at=10.0, now=10.0)
    assert bounds.earliest(1010.0) == 2000.0 - DRIFT * 1000
    assert bounds.latest(1010.0) == 2001.0 + DRIFT * 1000


def test_a_record_that_arrived_shows_that_the_clock_is_not_behind_it() -> None:
    bounds = ClockBounds()
    bounds.observe_date(1000.0, asked_at=10.0, now=10.0)
    bounds.observe_arrival(1000.7, now=10.0)
    assert bounds.earliest(10.0) == 1000.7
    bounds.observe_arrival(2000.0, now=10.0)
    assert bounds.earliest(10.0) == 1000.7


def test_a_clock_that_was_set_is_known_by_the_newest_answer_only() -> None:
    bounds = ClockBounds()
    bounds.observe_date(1000.0, asked_at=10.0, now=10.0)
    bounds.observe_date(500.0, asked_at=11.0, now=11.0)
    assert (bounds.earliest(11.0), bounds.latest(11.0)) == (500.0, 501.0)
