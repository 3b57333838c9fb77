"""A child is read after all its parents."""

from __future__ import annotations

from kinesumer.admin.tail import ParentFirstOrder
from kinesumer.model.streams import HASH_KEYS, Shard, Start

HALF = HASH_KEYS // 2
ALL = HASH_KEYS - 1
TIME = Start(type="AT_TIMESTAMP", timestamp=1.0)
PARENT = Shard("0", 0, ALL, (), True)
LEFT, RIGHT = Shard("1", 0, HALF - 1, ("0",)), Shard("2", HALF, ALL, ("0",))
MERGED = Shard("3", 0, ALL, ("1", "2"))


def begun(descent: ParentFirstOrder) -> dict[str, Start]:
    return {shard.shard_id: start for shard, start in descent.ready()}


def test_a_split_waits_for_its_parent_and_a_merge_for_both() -> None:
    descent = ParentFirstOrder([PARENT, LEFT, RIGHT, MERGED], TIME)
    assert begun(descent) == {"0": TIME}
    assert begun(descent) == {}
    descent.end("0", [LEFT, RIGHT])
    assert begun(descent) == {"1": TIME, "2": TIME}
    descent.end("1", [MERGED])
    assert begun(descent) == {}
    descent.end("2", [MERGED])
    assert begun(descent) == {"3": TIME}


def test_parents_that_kinesis_forgot_are_waited_for_by_nobody() -> None:
    assert begun(ParentFirstOrder([LEFT, RIGHT], Start.TRIM_HORIZON)) == {
        "1": Start.TRIM_HORIZON,
        "2": Start.TRIM_HORIZON,
    }


def test_from_the_latest_on_only_open_shards_count() -> None:
    assert begun(ParentFirstOrder([PARENT, LEFT, RIGHT], Start.LATEST)) == {
        "1": Start.LATEST,
        "2": Start.LATEST,
    }


def test_what_is_born_later_is_read_from_its_beginning() -> None:
    descent = ParentFirstOrder([LEFT, RIGHT], Start.LATEST)
    assert set(begun(descent)) == {"1", "2"}
    descent.end("1", [MERGED])
    descent.end("2", [MERGED])
    assert begun(descent) == {"3": Start.TRIM_HORIZON}
