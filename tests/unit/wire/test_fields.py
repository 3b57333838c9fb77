"""Test that ranges, hash keys, times and keys sort as text and are read unchanged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import CorruptRowError
from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import UnsupportedValue, Value
from kinesumer.model.streams import HASH_KEYS, Interval, Range, ShardKey, Start
from kinesumer.wire import rows
from tests.support.row_samples import ARN, MEMBER, READERS, SHARD, STREAM, TIP_AT

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
    assert rows.shard_id_of(rows.shard_key("app", shard, 255).sk) == shard.shard_id
    assert rows.go_partition("app", "orders") == "check_point#app#orders"


@pytest.mark.parametrize("value", ["", "billing", "2:billing", "0:a/b", "-1:a", 7])
def test_fan_out_that_cannot_be_read_is_ignored(value: Value) -> None:
    assert rows.read_member(MEMBER | {"fan_out": value}).fan_out == {}


@pytest.mark.parametrize("position", [Position("49"), Position("49", 3)])
def test_a_tip_is_written_as_it_is_read(position: Position) -> None:
    text = rows.tip_text(Tip(TIP_AT + 0.0009, position))
    assert rows.read_shard(SHARD | {"tip": text}).tip == Tip(TIP_AT, position)


@pytest.mark.parametrize(
    "tip",
    [
        7,
        "",
        "49",
        "2026-11-21T00:00:00.250Z",
        "2026-11-21T00:00:00.250 49",
        "2026-11-21T00:00:00.250Z x",
        "2026-13-21T00:00:00.250Z 49",
        "1969-11-21T00:00:00.250Z 49",
        "2026-11-21T00:00:00.250Z 49:2:3",
    ],
)
def test_a_tip_that_cannot_be_read_is_none(tip: Value) -> None:
    row = rows.read_shard(SHARD | {"tip": tip})
    assert row.tip is None
    assert row.read_until == 0.0


# For each type of attribute, values of other types.
OTHER_TYPES: dict[type, list[Value]] = {
    str: [1, UnsupportedValue('{"NULL": true}')],
    int: ["1", True, UnsupportedValue('{"N": "1.5"}')],
    bool: ["true", 0, 1],
    frozenset: ["text", UnsupportedValue('{"L": []}')],
}


# The readers ignore these attributes. A tip that can't be read counts as missing.
NOT_READ = ["member pk", "leader pk", "leader sk", "stream pk", "shard tip"]
NO_KEY = f"{0:032x}/"
INVALID: list[tuple[str, str, str]] = [
    ("member", "range", "nonsense|2:0-7f|-1:0-7f|0:7f-0|0:-5-7f"),
    ("member", "range", f"0:0-{HASH_KEYS:x}|0:0-{HASH_KEYS + 1:x}"),
    ("member", "range", "0:0-7f,0:7f-80|0:8-9,0:0-7|1:0-7f,0:0-7f"),
    ("member", "range", ",".join(f"0:{n:x}-{n:x}" for n in range(5001))),
    (
        "shard",
        "sk",
        f"{16:032x}|no hash/s1|0/s1|{'F' * 32}/s1|{NO_KEY}|{NO_KEY}no shard",
    ),
    ("shard", "last_hash", "no hash|ff"),
    ("shard", "start", "EVERYWHERE|LATEST 5.0|TRIM_HORIZON 5.0|AT_TIMESTAMP"),
    ("shard", "start", "AT_TIMESTAMP now|AT_TIMESTAMP nan|AT_TIMESTAMP 1e300"),
    ("shard", "start", "AT_TIMESTAMP -1"),
    ("shard", "sequence_number", "4٩||LATEST"),
    ("stream", "stream_created_at", "yesterday|nan"),
    ("stream", "start", ""),
]


def check_refused(kind: str, attribute: str, value: Value) -> None:
    """Check that the error of an invalid attribute names it and its row."""
    read, row = READERS[kind]
    with pytest.raises(CorruptRowError) as caught:
        read(invalid := row | {attribute: value})
    message = str(caught.value)
    assert f"pk={invalid['pk']!r} sk={invalid['sk']!r}" in message, value
    assert f"attribute {attribute} " in message
    assert "can't be read" in message


@pytest.mark.parametrize("kind", READERS)
def test_a_value_of_another_type_is_refused(kind: str) -> None:
    for attribute, value in READERS[kind][1].items():
        if f"{kind} {attribute}" not in NOT_READ:
            for other in OTHER_TYPES[type(value)]:
                check_refused(kind, attribute, other)


@pytest.mark.parametrize(("kind", "attribute", "values"), INVALID)
def test_invalid_text_is_refused(kind: str, attribute: str, values: str) -> None:
    for value in values.split("|"):
        check_refused(kind, attribute, value)


LIMITS: list[tuple[str, str, Value, Value]] = [
    ("member", "beat", 10**18, 10**18 + 1),
    ("member", "lease_ms", 86_400_000, 86_400_001),
    ("member", "lease_ms", 1, 0),
    ("member", "weight", 1, 0),
    ("member", "clients", 1_000_000, 1_000_001),
    ("member", "clients", 1, 0),
    ("member", "incarnation", 0, -1),
    ("shard", "epoch", 0, -1),
    ("leader", "leader_epoch", 0, -1),
    ("shard", "last_hash", f"{16:032x}", f"{15:032x}"),
    ("shard", "sequence_number", "9" * 129, "9" * 130),
    ("shard", "sub_sequence_number", 0, -1),
    ("stream", "stream_created_at", "0", "-0.001"),
    ("stream", "stream_created_at", "253402300799", "253402300800"),
]


@pytest.mark.parametrize(("kind", "attribute", "valid", "invalid"), LIMITS)
def test_attributes_have_limits(
    kind: str, attribute: str, valid: Value, invalid: Value
) -> None:
    read, row = READERS[kind]
    read(row | {attribute: valid})
    check_refused(kind, attribute, invalid)


def test_an_endless_value_is_cut_off_in_the_message() -> None:
    with pytest.raises(CorruptRowError) as caught:
        rows.read_shard(SHARD | {"start": "x" * 400_000})
    assert len(str(caught.value)) < 1000
