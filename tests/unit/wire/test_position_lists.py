"""Test that the lists of positions in offsets of version 2 can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import (
    BEGINNING,
    END,
    After,
    At,
    End,
    Position,
    ShardPosition,
)
from kinesumer.model.streams import Start
from kinesumer.wire.query_offsets import from_json
from tests.support.row_samples import aws_number

AT = Start(type="AT_TIMESTAMP", timestamp=5.5)
NUMBER = int(aws_number(6, 0x5C181EEA, 0x67648A17))


def read(lists: dict[str, Any]) -> Mapping[str, ShardPosition]:
    """Return the positions of an offset of version 2 that has these lists."""
    stream = {"created": 7.0, "shards": lists}
    return from_json({"version": 2, "streams": {"arn": stream}})["arn"].shards


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
    assert read(FULL_LISTS) == places


def test_tables_of_positions_can_be_read() -> None:
    first = {"after": aws_number(0, 1_763_805_000, 0), "seen": 1763805000.0}
    rows = "101A303A101A707A101A303A101AF0VA" * 2 + "101A303A101A"
    rows = f"{rows[:60]}V0FA{rows[64:]}"
    lists = [first, f"#2,1,1:{rows}"]
    # From shard to shard, the second in the sequence number grows by one, and the time
    # of arrival by 5 ms more than that.
    assert read({"shardId-000000000000": lists}) == {
        f"shardId-{shard:012}": After(
            Position(aws_number(shard, 1_763_805_000 + shard, 64 * shard)),
            1_763_805_000 + round(shard * 1.005, 3),
        )
        for shard in range(20)
    }


AFTER_12 = {"after": "12", "seen": 1.5}
BEGIN = {"start": "TRIM_HORIZON"}
INVALID_AFTER_12: list[Any] = [
    *("1", "1:!", ":-zzzzzzzzz", ":zzzzzzzzz", "z" * 75 + ":", "z" * 76 + ":"),
    *("z" * 100_000 + ":", "::9999999999999999999", "@::1", "٣:"),
    *("_999999999999999999 =", "_9999999999999999999 =", "_-1 =", "=  =", ""),
    *(1, None, ["="]),
]
INVALID_AFTER_BEGIN = [
    *("!1", ">1", "#1,1,1:00", "#0,0,0:", "#1,1,1:000", "7:1 #1,1,1:0z"),
    "#A,1,1:000",
]
INVALID_LISTS: list[list[Any]] = [
    *(["1:1"], ["="], ["_1 ="], [{"end": True, "seen": 1.5}, "1:1"]),
    *([AFTER_12, item] for item in INVALID_AFTER_12),
    *([BEGIN, words] for words in INVALID_AFTER_BEGIN),
]


@pytest.mark.parametrize("items", INVALID_LISTS, ids=lambda items: repr(items)[:80])
def test_an_invalid_list_is_refused(items: list[Any]) -> None:
    with pytest.raises(CorruptOffsetError) as caught:
        read({"s-000": items})
    assert len(str(caught.value)) < 1000


def test_a_list_of_positions_does_not_repeat_a_long_name() -> None:
    items = [{"after": "5", "seen": 1.0}, " ".join("=" * 1_000)]
    assert len(read({"s" * 124 + "0000": items})) == 1_001
    with pytest.raises(CorruptOffsetError, match="longer than a shard id"):
        read({"s" * 125 + "0000": items})
