"""Test the text by which members report loads, and that rows with it stay small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.wire.loads import (
    KEY_UNIT,
    MAX_ENTRIES,
    load_text,
    max_entries,
    read_loads,
)
from tests.support.stored_loads import stored_loads

A, B = (f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}" for name in "ab")
BOTH = frozenset({A, B})
rates = st.just(0.0) | st.floats(1e-3, 1e7)
loads = st.builds(Load, rates, rates, rates)


def shard(arn: str, number: int, count: int) -> tuple[ShardKey, int]:
    """Return the key and the starting hash key of one of a stream's equal shards."""
    return ShardKey(arn, f"shardId-{number:012}"), number * HASH_KEYS // count


def check(found: Load, load: Load) -> None:
    """Check that rates were read as they were written, up to their scale's steps."""
    for rate, written, error in zip(found, load, (0.1, 0.1, 0.002), strict=True):
        assert rate == pytest.approx(written, rel=error, abs=30)
    if load.handler_seconds_per_second > 1e-5:
        expected = load.handler_seconds_per_second
        assert found[2] == pytest.approx(expected, rel=0.002)


@given(st.lists(loads, min_size=1, max_size=20), st.sampled_from([1, 2, 94, 95, 8836]))
def test_reports_are_read_as_they_were_written(given: list[Load], last: int) -> None:
    bounded = [Load(*map(min, load, (2e7, 2e4, 900.0))) for load in given]
    written = [
        LoadReport(A, n * HASH_KEYS // len(bounded), 1, load)
        for n, load in enumerate(bounded)
    ]
    written.append(LoadReport(B, 0, last, bounded[0]))
    found = read_loads(load_text(written, BOTH), BOTH)
    for one, report in zip(found, written, strict=True):
        assert (one.stream_arn, one.shards) == (report.stream_arn, report.shards)
        assert report.first_hash - KEY_UNIT < one.first_hash <= report.first_hash
        check(one.load, report.load)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(), Load()),
        (Load(29.0, 0.029, 9e-7), Load()),
        (Load(30.0, 0.03, 1e-6), Load(30.0, 0.03, 1e-6)),
        (Load(1e99, 1e99, 1e99), Load(3e7, 3e4, 1e3)),
    ],
)
def test_rates_have_a_least_and_a_greatest_value(load: Load, expected: Load) -> None:
    [found] = read_loads(load_text([LoadReport(A, 0, 1, load)], BOTH), BOTH)
    assert found.load == pytest.approx(expected)


def test_without_reports_there_is_no_text() -> None:
    assert load_text([], BOTH) == ""
    assert read_loads("", BOTH) == []


@pytest.mark.parametrize(
    "text",
    [
        "0 0:1|",
        "0 0:1|AAA!!!",
        "2 0:1|AAA!!!!",
        "1 0:1|AAA!!!!!",
        "0 0:1|AAA!!!!!",
        "0 0:1|AAA!!!\x7f",
        "0 0:1|A A!!!!",
        "3 0:1|AAA!!!!",
        "0 2:1|AAA!!!!",
        "0|AAA!!!!",
        "0 0:1 AAA!!!!",
        "x 0:1|AAA!!!!",
        "٣ 0:1|AAA!!!!",
    ],
)
def test_an_invalid_text_reports_nothing(text: str) -> None:
    assert read_loads(text, BOTH) == []
    assert read_loads("0 0:1|AAA!!!!", BOTH) == [LoadReport(A, 0, 1, Load())]


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    read_loads(text, BOTH)
    read_loads(f"0 0:1|{text}", BOTH)
    read_loads(f"2 0:1|{text}", BOTH)


@given(st.integers(1, 700), st.integers(1, 3), st.integers(0, 700))
def test_the_entries_that_fit_take_no_more_room(
    shards: int, streams: int, room: int
) -> None:
    arns = [f"{A}{number}" for number in range(streams)]
    loads = {
        shard(arn, number, shards): Load(1.0 + number % 7, 1.0, 0.1)
        for arn in arns
        for number in range(shards)
    }
    entries = max_entries(room, streams, len(loads))
    text = stored_loads(loads, frozenset(arns), entries)
    found = read_loads(text, frozenset(arns))
    assert sum(one.shards for one in found) == len(loads)
    assert len(text) <= room or entries < streams


def test_a_row_of_one_stream_has_room_for_sixty_shards() -> None:
    assert max_entries(600, 1, 60) == MAX_ENTRIES == 60
    assert max_entries(600, 1, 61) == 60
    assert max_entries(100, 1, 13) == 13
    assert max_entries(100, 1, 14) == 10
    assert max_entries(0, 1, 1) == 0
