"""Test that scheduled faults have the user's kinds, rates and durations."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kinesumer.testing.simulation.faults import KINDS as FAULTS
from kinesumer.testing.simulation.final_phases import FATAL
from kinesumer.testing.simulation.run import Rate, draw_faults, parse_rates
from kinesumer.testing.simulation.service_faults import (
    SERVICE_KINDS,
    SUBSCRIPTION_KINDS,
)

KINDS = FAULTS | SERVICE_KINDS


def test_all_kinds_share_six_a_minute() -> None:
    rates = parse_rates("all")
    assert {rate.kind for rate in rates} == {*KINDS, *FATAL}
    shared = [rate.per_minute for rate in rates if rate.kind not in FATAL]
    assert sum(shared) == pytest.approx(6)
    assert len({*shared}) == 1


def test_a_kind_has_a_rate_and_a_length_of_its_own() -> None:
    assert parse_rates("crash:2,stall::20,split:1:5") == (
        Rate("crash", 2.0, 60.0),
        Rate("stall", 6.0, 20.0),
        Rate("split", 1.0, 5.0),
    )


def test_one_kind_may_be_more_frequent_than_the_others() -> None:
    rates = {rate.kind: rate.per_minute for rate in parse_rates("all,crash:30")}
    assert rates["crash"] == 30
    assert rates["stall"] < 1


def test_all_may_have_another_rate_together() -> None:
    rates = [rate for rate in parse_rates("all:12:5") if rate.kind not in FATAL]
    assert sum(rate.per_minute for rate in rates) == pytest.approx(12)
    assert {rate.seconds for rate in rates} == {5.0}


def test_none_is_none() -> None:
    assert parse_rates("none") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "rain",
            "unknown kinds of faults: rain; known are all, subscriptions, none, auto, ",
        ),
        ("crash:0", "crash:0: rate and length must be greater than 0"),
        ("crash:often", "crash:often: rate and length must be numbers"),
        ("crash:1:2:3", "crash:1:2:3: write at most KIND:PER_MINUTE:SECONDS"),
    ],
)
def test_what_is_no_rate_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_rates(text)


def test_faults_come_as_often_and_last_as_long_as_their_rates_say() -> None:
    rates = parse_rates("crash:2,stall:1:20")
    faults = draw_faults(rates, 6000 * 60, random.Random(1))
    counts = Counter(fault.kind for fault in faults)
    assert counts["crash"] == pytest.approx(12000, rel=0.05)
    assert counts["stall"] == pytest.approx(6000, rel=0.05)
    longest = max(fault.duration_seconds for fault in faults if fault.kind == "stall")
    assert 19 < longest <= 20


def test_no_fault_outlasts_the_time_for_faults() -> None:
    faults = draw_faults(parse_rates("all:60"), 30, random.Random(1))
    assert faults
    assert all(fault.at + fault.duration_seconds <= 30.001 for fault in faults)


def test_what_nobody_survives_happens_at_the_end_only() -> None:
    assert draw_faults(parse_rates("table_deleted"), 600, random.Random(1)) == ()


def test_kinds_of_subscriptions_are_drawn_only_if_they_are_named() -> None:
    named = {rate.kind for rate in parse_rates("all,subscriptions")}
    assert named - {rate.kind for rate in parse_rates("all")} == {*SUBSCRIPTION_KINDS}
