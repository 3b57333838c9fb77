"""Test how starts are given: as values, and as texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kinesumer import Start, Stream
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import as_start
from kinesumer.model.times import parse_time

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def seconds_ago(start: Start) -> float:
    assert start.type == "AT_TIMESTAMP"
    assert start.timestamp is not None
    return datetime.now(UTC).timestamp() - start.timestamp


def test_a_start_may_be_an_age() -> None:
    for age in ("2h", "120m", "7200s", timedelta(hours=2)):
        assert 7200 <= seconds_ago(Start.ago(age)) < 7300
    assert 0 <= seconds_ago(Start.ago("0s")) < 100
    assert 3 * 86400 <= seconds_ago(Start.ago("3d")) < 3 * 86400 + 100


@pytest.mark.parametrize(
    "age", ["", "2", "h", "2 h", "-2h", "2w", timedelta(-1), 7200, None, "9999999d"]
)
def test_other_ages_are_refused(age: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"2h|TRIM_HORIZON"):
        Start.ago(age)


def test_a_start_may_be_a_text() -> None:
    assert Start.parse("TRIM_HORIZON") == Start.TRIM_HORIZON
    assert Start.parse("latest") == Start.LATEST
    assert Start.parse("2026-01-31T12:00:00Z") == Start.at(NOON)
    assert Start.parse("2026-01-31T13:00:00+01:00") == Start.at(NOON)
    assert 7200 <= seconds_ago(Start.parse("2h")) < 7300


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("oldest", "start oldest: give LATEST, TRIM_HORIZON, a time like"),
        ("2026-01-31T12:00:00", "no time zone: add Z"),
        ("99999999999d", "start 99999999999d: give"),
        ("1960-01-31T12:00:00Z", "outside 1970 to 9999"),
        ("", "start : give"),
    ],
)
def test_other_texts_are_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Start.parse(text)
    with pytest.raises(ConfigurationError, match="--since soon: give a time"):
        parse_time("--since", "soon", NOON)


def test_calls_and_streams_take_starts_and_texts_and_nothing_else() -> None:
    assert as_start("TRIM_HORIZON") == as_start(Start.TRIM_HORIZON)
    assert Stream("orders", start="trim_horizon") == Stream(
        "orders", start=Start.TRIM_HORIZON
    )
    with pytest.raises(ConfigurationError, match="start soon"):
        Stream("orders", start="soon")
    wrong: Any = NOON
    with pytest.raises(ConfigurationError, match="must be a Start or a text"):
        as_start(wrong)
