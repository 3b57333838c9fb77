"""Test offsets as JSON in Spark's log."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import (
    BEGINNING,
    END,
    After,
    At,
    End,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import Start
from kinesumer.wire.query_offsets import from_json, to_json
from tests.support.row_samples import aws_number

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
AT = Start(type="AT_TIMESTAMP", timestamp=5.5)
NUMBER = 49590338271490256608559692538361571095921575989136588898


def offset(shards: dict[str, ShardPosition], **more: Any) -> dict[str, StreamOffset]:
    return {ARN: StreamOffset(7.0, shards, **more)}


def test_the_offset_of_1000_shards_is_small() -> None:
    chance = random.Random(15)
    shards: dict[str, ShardPosition] = {}
    for shard in range(2_000, 3_000):
        end = 1_763_805_000 + 3_600 * chance.random()
        number = aws_number(shard, int(end), chance.randrange(1 << 40))
        shards[f"shardId-{shard:012}"] = After(Position(number), end)
    text = json.dumps(to_json(offset(shards)))
    assert len(text) <= 35_000
    assert json.dumps(to_json(from_json(json.loads(text)))) == text


def test_an_offset_of_few_shards_is_written_in_full() -> None:
    given = offset({"shardId-000000000006": After(Position(str(NUMBER)), 1.9996)})
    position = {"after": str(NUMBER), "seen": 1.999}
    assert to_json(given) == {
        "streams": {
            ARN: {"created": 7.0, "shards": {"shardId-000000000006": position}}
        },
        "version": 3,
    }


def test_before_the_first_batch_an_offset_is_empty() -> None:
    assert to_json({}) == from_json({}) == {}


def test_an_offset_of_many_shards_is_compressed() -> None:
    value = to_json(offset({f"s-{shard}": AT for shard in range(1000)}))
    assert [*value] == ["version", "zlib"]


positions_at = st.builds(
    Position,
    st.integers(0, 10**129 - 1).map(str)
    | st.from_regex(r"[0-9]{1,129}", fullmatch=True),
    st.none() | st.integers(0, 5),
)
times = st.integers(0, 4 * 10**12).map(lambda millis: millis / 1000)
all_places = (
    st.builds(After, positions_at, times)
    | st.builds(At, st.integers(0, 10**129 - 1).map(str), times)
    | st.builds(End, times)
    | st.builds(
        lambda t: Start(type="AT_TIMESTAMP", timestamp=t), times | st.floats(0, 4e9)
    )
    | st.sampled_from([BEGINNING, END])
)
ids = st.integers(0, 60).map(lambda n: f"shardId-{n:012}") | st.from_regex(
    r"[a-c][0-9]{0,20}", fullmatch=True
)


@settings(max_examples=settings().max_examples // 2)
@given(
    st.dictionaries(ids, all_places, min_size=1, max_size=60),
    st.dictionaries(ids, all_places, max_size=2),
)
def test_any_offset_survives_sparks_log(
    places: dict[str, ShardPosition], origin: dict[str, ShardPosition]
) -> None:
    value = to_json(offset(places, origin=origin, anchored_at=4.5))
    found = from_json(json.loads(json.dumps(value)))
    assert found == offset(places, origin=origin, anchored_at=4.5)
    ends = {key: place.seen for key, place in places.items() if isinstance(place, End)}
    shards = found[ARN].shards
    assert {i: p.seen for i, p in shards.items() if isinstance(p, End)} == ends
    again = offset(dict(reversed(places.items())), origin=origin, anchored_at=4.5)
    assert json.dumps(to_json(again)) == json.dumps(value)


# --- refusals ------------------------------------------------------------------------


def compressed(streams: bytes, extra: bytes = b"") -> str:
    return base64.b64encode(zlib.compress(streams) + extra).decode()


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
    base64.b64encode(b"not zlib").decode(),
    compressed(b"{}")[:-4],
    compressed(b"[]"),
    compressed(b"{"),
    compressed(b'{"a":' * 100_000),
    compressed(b"\xff"),
    compressed(b"{}", extra=b"more"),
    compressed(bytes(65 << 20)),
]
INVALID_TIMES = None, "x", "1.5", float("nan"), float("inf"), -1, 10**400, 1e300
INVALID_LISTS: list[Any] = [
    {"s-1": [{"end": True}, "="], "s-2": [{"end": True}]},
    {"s-1": [{"end": True}, "="], "s-2": {"end": True}},
    {"s": [{"end": True}, "="]},
    [],
    "s-1",
]


def of_stream(version: int = 1, **fields: Any) -> Any:
    """Return an offset of a stream with some other fields."""
    stream = {"created": 1.0, "shards": {}, **fields}
    return {"version": version, "streams": {ARN: stream}}


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
    *(of_stream(created=created) for created in INVALID_TIMES),
    *(of_stream(shards={"s": position}) for position in INVALID_POSITIONS),
    of_stream(shards={"s-1": [{"end": True}]}),
    *(of_stream(2, shards=shards) for shards in INVALID_LISTS),
]


@pytest.mark.parametrize("value", CORPUS, ids=lambda value: repr(value)[:80])
def test_an_invalid_offset_is_refused(value: Any) -> None:
    with pytest.raises(CorruptOffsetError) as caught:
        from_json(value)
    assert len(str(caught.value)) < 1000
