"""Test how texts are shortened, and how durations are formatted."""

from __future__ import annotations

import pytest

from kinesumer.runtime.text import counted, duration_text, number_text, shorten


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (100_000, "2 min"),
        (7_200_000, "2.0 h"),
        (259_200_000, "3.0 d"),
    ],
)
def test_durations_have_a_suitable_unit(millis: int, text: str) -> None:
    assert duration_text(millis) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0002, "<0.001"),
        (0.3456, "0.346"),
        (999.4, "999"),
        (999.6, "1k"),
        (1_234_567, "1.23M"),
        (5e11, "500G"),
    ],
)
def test_numbers_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert number_text(value) == text


def test_one_thing_is_counted_in_the_singular() -> None:
    counts = [counted(number, "record") for number in (0, 1, 1500)]
    assert counts == ["0 records", "1 record", "1,500 records"]


def test_a_long_text_loses_its_middle() -> None:
    assert shorten("shardId-000000000042", 20) == "shardId-000000000042"
    assert shorten("shardId-000000000042", 10) == "sha…000042"
