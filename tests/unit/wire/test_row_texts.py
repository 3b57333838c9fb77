"""Test that ranges, hash keys, times and keys sort as text and are read unchanged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.streams import HASH_KEYS, Interval, Range, ShardKey, Start
from kinesumer.wire import rows
from tests.unit.wire.test_rows import ARN, MEMBER, STREAM

hash_keys = st.integers(0, HASH_KEYS - 1)
arns = st.sampled_from([f"arn:aws:kinesis:r:{n}:stream/s" for n in range(5)])


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    """Return intervals that are in order and do not overlap."""
    parts: list[Interval] = []
    for arn in sorted(draw(st.frozensets(arns))):
        ends = draw(st.frozensets(hash_keys | st.just(HASH_KEYS - 1), max_size=6))
        even = sorted(ends)[: len(ends) // 2 * 2]
        parts += map(Interval, [arn] * len(even), even[::2], even[1::2])
    return tuple(parts)


@given(ranges(), st.frozensets(arns))
def test_a_range_survives_the_way_to_the_row_and_back(
    range_: Range, others: frozenset[str]
) -> None:
    streams = others | {interval.stream_arn for interval in range_}
    text = rows.range_text(range_, streams)
    row = MEMBER | {"range": text, "streams": streams}
    assert rows.read_member(row).range == range_


def test_a_range_is_written_short() -> None:
    last = HASH_KEYS - 1
    parts = (Interval(ARN, 0, 15), Interval(ARN, 16, last - 1), Interval(ARN, 0, last))
    text = rows.range_text(parts, frozenset({ARN}))
    assert text == f"0:0-f,0:10-{last - 1:x},0:0-"


@given(hash_keys, hash_keys)
def test_hash_keys_sort_as_text_like_the_numbers(one: int, other: int) -> None:
    assert (rows.hash_text(one) < rows.hash_text(other)) == (one < other)


starts = st.floats(0, 4e9).map(lambda at: Start(type="AT_TIMESTAMP", timestamp=at))


@given(st.sampled_from([Start.LATEST, Start.TRIM_HORIZON]) | starts)
def test_a_start_is_read_as_it_is_written(start: Start) -> None:
    row = STREAM | {"start": rows.start_text(start)}
    assert rows.read_stream(row).start == start


@given(st.integers(0, 4_000_000_000_000))
def test_times_are_utc_with_milliseconds_and_sort_as_text(millis: int) -> None:
    text = rows.timestamp_text(millis / 1000)
    assert text.endswith("Z")
    assert rows.timestamp_seconds(text) == pytest.approx(millis / 1000, abs=0.0011)
    assert rows.timestamp_text(millis / 1000 + 1) > text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("2001-09-09T03:46:40.123456789+02:00", 1_000_000_000.123456),
        ("yesterday", -math.inf),
        (None, -math.inf),
    ],
)
def test_times_that_go_wrote_are_parsed(text: str | None, seconds: float) -> None:
    assert rows.timestamp_seconds(text) == pytest.approx(seconds)


def test_keys_keep_apps_streams_and_accounts_apart() -> None:
    shard = ShardKey(ARN, "shardId-000000000001")
    assert rows.member_key("app", "c") == ("member#app", "c")
    assert rows.leader_key("app") == ("leader#app", "leader")
    assert rows.group_key("app") == ("group#app", "group")
    assert rows.stream_key("app", ARN) == ("group#app", f"stream#{ARN}")
    assert rows.shard_key("app", shard, 255) == (
        f"shard#app#{ARN}",
        f"{255:032x}/shardId-000000000001",
    )
    assert rows.go_partition("app", "orders") == "check_point#app#orders"
