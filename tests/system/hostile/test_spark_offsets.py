"""Test arbitrary offsets in a Spark query's checkpoint."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.core.batch_ranges import between
from kinesumer.errors import ConfigurationError, CorruptOffsetError
from kinesumer.spark.options.streams import parse_position
from kinesumer.wire.query_offsets import from_json, to_json
from tests.system.hostile.strategies import json_values, with_examples

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


POSITIONS_JSON: list[Any] = [
    {"after": "12", "seen": 1.5},
    {"after": "12", "seen": 1.5, "sub": 3},
    {"start": "TRIM_HORIZON"},
    {"start": "AT_TIMESTAMP", "time": 1.5},
    {"end": True},
    {"end": True, "seen": 2.5},
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
    with suppress(CorruptOffsetError):
        between(from_json(first), from_json(last))


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
