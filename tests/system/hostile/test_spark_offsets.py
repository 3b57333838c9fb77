"""Test arbitrary offsets in a Spark query's checkpoint."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.core.batch_ranges import between
from kinesumer.errors import ConfigurationError, CorruptOffsetError
from kinesumer.spark.offset_json import from_json, to_json
from kinesumer.spark.options.streams import parse_position
from tests.system.hostile.strategies import json_values, with_examples

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


def compressed(streams: bytes, extra: bytes = b"") -> str:
    return base64.b64encode(zlib.compress(streams) + extra).decode()


POSITIONS_JSON: list[Any] = [
    {"after": "12", "seen": 1.5},
    {"after": "12", "seen": 1.5, "sub": 3},
    {"start": "TRIM_HORIZON"},
    {"start": "AT_TIMESTAMP", "time": 1.5},
    {"end": True},
    {"end": True, "seen": 2.5},
]
INVALID_POSITIONS: list[Any] = [
    None,
    [],
    "12",
    {},
    {"after": 12, "seen": 1.0},
    {"after": "twelve", "seen": 1.0},
    {"after": "٣", "seen": 1.0},
    {"after": "1" * 5000, "seen": 1.0},
    {"after": "12"},
    {"after": "12", "seen": float("inf")},
    {"after": "12", "seen": 1.0, "sub": 1.5},
    {"after": "12", "seen": 1.0, "sub": -1},
    {"after": "12", "seen": 1.0, "sub": float("inf")},
    {"after": "12", "seen": 1.0, "sub": 10**400},
    {"after": "12", "seen": 1.0, "sub": "1" * 5000},
    {"start": "LATEST"},
    {"start": "AT_TIMESTAMP"},
    {"start": "AT_TIMESTAMP", "time": 1e300},
    {"start": "AT_TIMESTAMP", "time": float("nan")},
    {"end": False},
    {"end": True, "seen": "soon"},
]
INVALID_ZLIB: list[Any] = [
    5,
    "",
    "not Base64",
    compressed(b"{}")[:-4],
    compressed(b"[]"),
    compressed(b"{"),
    compressed(b'{"a":' * 100_000),
    compressed(b"\xff"),
    compressed(b"{}", extra=b"more"),
    compressed(bytes(65 << 20)),
]
CORPUS: list[Any] = [
    [],
    "offset",
    5,
    {"version": 1},
    {"version": 1, "streams": []},
    {"version": True, "streams": {}},
    {"version": 4, "streams": {}},
    {"version": 3},
    *({"version": 3, "zlib": text} for text in INVALID_ZLIB),
    {"version": 1, "streams": {ARN: None}},
    *(
        {"version": 1, "streams": {ARN: {"created": created, "shards": {}}}}
        for created in (
            None,
            "x",
            "1.5",
            float("nan"),
            float("inf"),
            -1,
            10**400,
            1e300,
        )
    ),
    *(
        {"version": 1, "streams": {ARN: {"created": 1.0, "shards": {"s": position}}}}
        for position in INVALID_POSITIONS
    ),
]
INVALID_LISTS: list[Any] = [
    ["1:1"],
    ["="],
    ["_1 ="],
    [{"after": "12", "seen": 1.5}, "1"],
    [{"after": "12", "seen": 1.5}, "1:!"],
    [{"after": "12", "seen": 1.5}, ":-zzzzzzzzz"],
    [{"after": "12", "seen": 1.5}, ":zzzzzzzzz"],
    [{"after": "12", "seen": 1.5}, "z" * 75 + ":"],
    [{"after": "12", "seen": 1.5}, "z" * 76 + ":"],
    [{"after": "12", "seen": 1.5}, "z" * 100_000 + ":"],
    [{"after": "12", "seen": 1.5}, "::9999999999999999999"],
    [{"after": "12", "seen": 1.5}, "@::1"],
    [{"after": "12", "seen": 1.5}, "٣:"],
    [{"after": "12", "seen": 1.5}, "_999999999999999999 ="],
    [{"after": "12", "seen": 1.5}, "_9999999999999999999 ="],
    [{"after": "12", "seen": 1.5}, "_-1 ="],
    [{"after": "12", "seen": 1.5}, "=  ="],
    [{"after": "12", "seen": 1.5}, ""],
    [{"after": "12", "seen": 1.5}, 1],
    [{"after": "12", "seen": 1.5}, None],
    [{"after": "12", "seen": 1.5}, ["="]],
    [{"start": "TRIM_HORIZON"}, "!1"],
    [{"start": "TRIM_HORIZON"}, ">1"],
    [{"end": True, "seen": 1.5}, "1:1"],
]
CORPUS += [
    {"version": 2, "streams": {ARN: {"created": 1.0, "shards": {"s-1": items}}}}
    for items in INVALID_LISTS
]
CORPUS += [
    {"version": version, "streams": {ARN: {"created": 1.0, "shards": shards}}}
    for version, shards in [
        (1, {"s-1": [{"end": True}]}),
        (2, {"s-1": [{"end": True}, "="], "s-2": [{"end": True}]}),
        (2, {"s-1": [{"end": True}, "="], "s-2": {"end": True}}),
        (2, {"s": [{"end": True}, "="]}),
        (2, []),
        (2, "s-1"),
    ]
]
positions = st.sampled_from(POSITIONS_JSON) | json_values
differences = (
    st.sampled_from(
        ["=", ":", "1:1", "2:-3", "1.1", "@1:1", "!1", ">-1", "::3", "_1", "_2 = :7"]
    )
    | st.from_regex(r"[@!>]?[0-9A-Za-z+/]{0,40}[:.]?-?[0-9A-Za-z]{0,8}", fullmatch=True)
    | positions
)
lists = st.builds(
    lambda first, rest: [first, *rest], positions, st.lists(differences, max_size=5)
)
shard_ids = st.text(max_size=4) | st.sampled_from(["s-1", "s-3", "s-9", "s-10"])


@st.composite
def offsets(draw: st.DrawFn) -> Any:
    """Return an offset whose parts are valid or damaged."""
    stream: dict[str, Any] = {
        "created": draw(st.floats(0, 4e9) | json_values),
        "shards": draw(st.dictionaries(shard_ids, positions | lists, max_size=3)),
    }
    if draw(st.booleans()):
        stream["anchored"] = draw(st.floats(0, 4e9) | json_values)
    if draw(st.booleans()):
        stream["from"] = draw(st.dictionaries(shard_ids, positions | lists, max_size=3))
    streams = {ARN: stream} if draw(st.booleans()) else draw(json_values)
    return {
        "version": draw(st.sampled_from([1, 2, 3]) | json_values),
        "streams": streams,
    }


@pytest.mark.parametrize("value", CORPUS, ids=lambda value: repr(value)[:80])
def test_an_invalid_offset_is_refused(value: Any) -> None:
    with pytest.raises(CorruptOffsetError) as caught:
        from_json(value)
    assert len(str(caught.value)) < 1000


def test_a_list_of_positions_does_not_repeat_a_long_name() -> None:
    def listed(shard_id: str) -> Any:
        items = [{"after": "5", "seen": 1.0}, " ".join("=" * 1_000)]
        stream = {"created": 1.0, "shards": {shard_id: items}}
        return {"version": 2, "streams": {ARN: stream}}

    assert len(from_json(listed("s" * 124 + "0000"))[ARN].shards) == 1_001
    with pytest.raises(CorruptOffsetError, match="longer than a shard id"):
        from_json(listed("s" * 125 + "0000"))


@given(offsets() | json_values)
@settings(max_examples=settings().max_examples // 2)
def test_any_offset_is_read_completely_or_refused(value: Any) -> None:
    try:
        offset = from_json(value)
    except CorruptOffsetError:
        return
    text = json.dumps(to_json(offset), allow_nan=False)
    assert from_json(json.loads(text)) == offset


@given(offsets(), offsets())
@settings(max_examples=settings().max_examples // 2)
def test_a_batch_between_any_two_offsets_is_planned_or_refused(
    first: Any, last: Any
) -> None:
    try:
        between(from_json(first), from_json(last))
    except CorruptOffsetError:
        pass


TEXTS = [
    "",
    '{"a":' * 100_000,
    '{"orders": {"s": "AT_TIMESTAMP"}}',
    '{"orders": "LATEST"}',
    '{"orders": {"s": "' + "1" * 5000 + '"}}',
    '{"orders": {"s": ' + "1" * 5000 + "}}",
    '{"version": 2, "streams": {"a": {"created": 1, "shards": {"s-1": ["="]}}}}',
    '{"version": 2, "streams": {"a": {"created": 1, "shards": {"s-1": {"s": []}}}}}',
    '{"version": 1, "streams": {"a": {"created": 1e999, "shards": {}}}}',
    '{"at_timestamp": "1", "format": "yyyyyyyy"}',
    '{"at_timestamp": "1", "format": "%"}',
    '{"at_timestamp": "1", "format": "%Q"}',
    '{"at_timestamp": "2026", "format": ["yyyy"]}',
    '{"at_timestamp": "9999-12-31 23:59:59 -1400", "format": "yyyy-MM-dd HH:mm:ss Z"}',
    "AT_TIMESTAMP 0001-01-01T00:00:00+14:00",
    "AT_TIMESTAMP 9999-12-31T23:59:59-14:00",
    "AT_TIMESTAMP 1e300",
]


@with_examples(TEXTS)
@given(
    st.text(max_size=30)
    | offsets().map(json.dumps)
    | st.dictionaries(st.text(max_size=5), positions, max_size=2).map(json.dumps)
    | st.builds(
        lambda time, form: json.dumps({"at_timestamp": time, "format": form}),
        st.text("0123456789-: +", max_size=20),
        st.text("yMdHmsSZX%-: Yj", max_size=20),
    )
)
@settings(max_examples=settings().max_examples // 2)
def test_any_text_is_a_position_or_refused_with_the_option(text: str) -> None:
    try:
        parse_position("startingPosition", text)
    except ConfigurationError as error:
        assert "startingPosition" in str(error)
