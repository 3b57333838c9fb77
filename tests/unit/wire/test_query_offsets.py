"""Test offsets as JSON in Spark's log."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import Position
from kinesumer.model.query_offsets import BEGINNING, END, After, At, End, StreamOffset
from kinesumer.model.streams import Start
from kinesumer.wire.query_offsets import from_json, to_json

if TYPE_CHECKING:
    from kinesumer.model.query_offsets import ShardPosition

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
AT = Start(type="AT_TIMESTAMP", timestamp=5.5)
NUMBER = 49590338271490256608559692538361571095921575989136588898


def offset(shards: dict[str, ShardPosition], **more: Any) -> dict[str, StreamOffset]:
    return {ARN: StreamOffset(7.0, shards, **more)}


def aws_number(shard: int, taken: int, counter: int) -> str:
    """Return a sequence number in the format of AWS."""
    created = 0x5BF4E5C2
    hexa = f"2{created:09x}{shard % 16:x}{counter:016x}00{taken:09x}{shard:08x}2"
    return str(int(hexa, 16))


def test_the_numbers_of_these_tests_are_like_those_of_aws() -> None:
    assert aws_number(6, 0x5C181EEA, 0x67648A17) == str(NUMBER)


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


# --- versions before -----------------------------------------------------------------


FULL_LISTS: dict[str, Any] = {
    "s-000": [
        {"after": "7", "seen": 2.0},
        "= = = = = = = = = = = = = = = = = = =",
        {"start": "TRIM_HORIZON"},
        "1:1 @W:-1",
        {"after": "038", "seen": 1.0},
        "_6 ::5 !10 !-Ge >1Ly",
        {"start": "AT_TIMESTAMP", "time": 5.50001},
        "WM/Jbmc000006TaYXS01S61xg000014: 1.",
    ],
    "t": ["WM/JbmX000006TaYXS01S61xh00000H:"],
}


def test_lists_of_differences_can_be_read() -> None:
    places: dict[str, ShardPosition] = {
        f"s-{i:03}": After(Position("7"), 2.0) for i in range(20)
    }
    places |= {
        "s-020": BEGINNING,
        "s-021": After(Position("6"), 2.001),
        "s-022": At("38", 2.0),
        "s-023": After(Position("038"), 1.0),
        "s-030": After(Position("38", 5), 1.0),
        "s-031": End(1.064),
        "s-032": END,
        "s-033": AT,
        "s-034": Start(type="AT_TIMESTAMP", timestamp=5.50001),
        "s-035": After(Position(str(NUMBER)), 5.5),
        "s-036": After(Position(str(NUMBER ^ 7 << 144 ^ 7 << 4 ^ 1 << 36)), 5.5),
        "t": After(Position("3"), 5.5),
    }
    stream = {"created": 7.0, "shards": FULL_LISTS}
    assert from_json({"version": 2, "streams": {ARN: stream}}) == offset(places)


def test_tables_of_positions_can_be_read() -> None:
    first = {"after": aws_number(0, 1_763_805_000, 0), "seen": 1763805000.0}
    rows = "101A303A101A707A101A303A101AF0VA" * 2 + "101A303A101A"
    rows = f"{rows[:60]}V0FA{rows[64:]}"
    lists = [first, f"#2,1,1:{rows}"]
    stream = {"created": 7.0, "shards": {"shardId-000000000000": lists}}
    # From shard to shard, the second in the sequence number grows by one, and the time
    # of arrival by 5 ms more than that.
    assert from_json({"version": 2, "streams": {ARN: stream}}) == offset(
        {
            f"shardId-{shard:012}": After(
                Position(aws_number(shard, 1_763_805_000 + shard, 64 * shard)),
                1_763_805_000 + round(shard * 1.005, 3),
            )
            for shard in range(20)
        }
    )


@pytest.mark.parametrize(
    "words", ["#1,1,1:00", "#0,0,0:", "#1,1,1:000", "7:1 #1,1,1:0z", "#A,1,1:000"]
)
def test_a_broken_table_is_refused(words: str) -> None:
    first = {"start": "TRIM_HORIZON"}
    value = {"created": 1.0, "shards": {"shardId-000": [first, words]}}
    with pytest.raises(CorruptOffsetError):
        from_json({"version": 2, "streams": {ARN: value}})


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
