"""Test how the shards of a table's stream roll over, split and expire."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import HASH_KEYS
from kinesumer.testing import AwsError, TableStreamSettings
from kinesumer.testing.table_streams.changes import Change
from kinesumer.testing.table_streams.streams import SequenceNumbers, TableStream

ARN = "arn:aws:dynamodb:us-east-1:000000000000:table/orders/stream/2026-01-01"
SCHEMA = [{"AttributeName": "id", "KeyType": "HASH"}]
HOUR = 3600.0
START = 1000.0


def stream_of(partitions: int = 1, **settings: float) -> TableStream:
    chosen = TableStreamSettings(partitions=partitions, **settings)  # type: ignore[arg-type]
    return TableStream(
        ARN, SCHEMA, "NEW_AND_OLD_IMAGES", START, chosen, SequenceNumbers()
    )


def insert(stream: TableStream, key: str, now: float = START) -> None:
    keys = {"id": {"S": key}}
    stream.append(Change(keys, None, keys), "us-east-1", now)


def tiles(stream: TableStream) -> bool:
    shards = stream.open
    return (
        shards[0].first_hash == 0
        and shards[-1].partition.last_hash == HASH_KEYS - 1
        and all(a.partition.last_hash + 1 == b.first_hash for a, b in pairwise(shards))
    )


def test_a_shard_is_succeeded_after_four_hours() -> None:
    stream = stream_of()
    (first,) = stream.open
    stream.settle(START + 4 * HOUR - 1)
    assert stream.open == [first]
    stream.settle(START + 4 * HOUR)
    (second,) = stream.open
    assert first.closed
    assert second.parent_id == first.shard_id
    assert second.partition == first.partition
    assert stream.children(first.shard_id) == [second]


def test_a_stream_that_nobody_used_has_a_generation_for_each_four_hours() -> None:
    stream = stream_of(partitions=3)
    stream.settle(START + 13 * HOUR)
    times = sorted({shard.opened_at for shard in stream.shards.values()})
    assert times == [START + hours * HOUR for hours in (0, 4, 8, 12)]
    assert len(stream.shards) == 12


def test_a_closed_shard_expires_a_day_after_its_end() -> None:
    stream = stream_of()
    (first,) = stream.open
    stream.settle(START + 28 * HOUR)
    assert first.shard_id in stream.shards
    stream.settle(START + 28 * HOUR + 1)
    assert first.shard_id not in stream.shards
    # Its children still name it, as in AWS.
    assert first.shard_id in {shard.parent_id for shard in stream.shards.values()}
    assert stream.children(first.shard_id) == []
    assert first.shard_id not in {each.shard_id for each in stream.listing("", 100)}


def test_a_record_expires_a_day_after_the_change() -> None:
    stream = stream_of(rollover_seconds=100 * HOUR)
    insert(stream, "a")
    insert(stream, "b", START + HOUR)
    (shard,) = stream.open
    stream.settle(START + 24 * HOUR + 1)
    assert shard.trimmed == 1
    assert shard.log[0].content == b""
    assert shard.log[1].content


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 20), st.booleans())))
def test_partitions_cover_all_items_whatever_rolls_over_and_splits(
    partitions: int, steps: list[tuple[int, bool]]
) -> None:
    stream = stream_of(partitions)
    now = START
    for number, splits in steps:
        if splits:
            chosen = stream.open[number % len(stream.open)]
            stream.split(chosen.shard_id, now)
        else:
            now += number * HOUR / 5
            stream.settle(now)
        assert tiles(stream)
    assert len(stream.open) == partitions + sum(splits for _, splits in steps)


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from([0, 0, 0, 1, 2])))
)
def test_the_records_of_an_item_follow_the_lineage(
    steps: list[tuple[str, int]],
) -> None:
    stream = stream_of(2)
    now = START
    holders: dict[str, list[str]] = {}
    for key, event in steps:
        now += 60
        if event == 1:
            stream.roll_over(now)
        if event == 2:
            stream.split(stream.open[0].shard_id, now)
        keys = {"id": {"S": key}}
        change = Change(keys, None, keys)
        shard = stream.route(change)
        stream.append(change, "us-east-1", now)
        assert not shard.closed
        holders.setdefault(key, []).append(shard.shard_id)
    for shards in holders.values():
        for before, after in pairwise(shards):
            assert before == after or before in ancestors(stream, after)


def ancestors(stream: TableStream, shard_id: str) -> set[str]:
    found = set()
    parent = stream.shards[shard_id].parent_id
    while parent is not None:
        found.add(parent)
        parent = stream.shards[parent].parent_id
    return found


def test_a_split_gives_both_halves_the_same_parent() -> None:
    stream = stream_of()
    (parent,) = stream.open
    stream.split(parent.shard_id, START + 60)
    assert [shard.parent_id for shard in stream.open] == [parent.shard_id] * 2
    assert tiles(stream)
    low, high = stream.open
    assert stream.children(parent.shard_id) == sorted(
        [low, high], key=lambda shard: shard.shard_id
    )
    # Each child is open for four hours, counted from the split.
    stream.settle(START + 4 * HOUR)
    assert stream.open == [low, high]
    stream.settle(START + 4 * HOUR + 60)
    assert [shard.parent_id for shard in stream.open] == [low.shard_id, high.shard_id]


def test_only_an_open_shard_can_be_split() -> None:
    stream = stream_of()
    (parent,) = stream.open
    stream.roll_over(START)
    with pytest.raises(AwsError, match="closed"):
        stream.split(parent.shard_id, START)
    with pytest.raises(AwsError, match="does not exist"):
        stream.split("shardId-00000000000000000000-00000000", START)


def test_numbers_of_a_child_follow_those_of_its_parent() -> None:
    stream = stream_of()
    (parent,) = stream.open
    for number in range(50):
        insert(stream, str(number))
    stream.roll_over(START)
    (child,) = stream.open
    insert(stream, "late")
    taken = [record.sequence_number for record in (*parent.log, *child.log)]
    assert [int(number) for number in taken] == sorted(map(int, taken))
    # Code that compares them as text finds another order.
    assert taken != sorted(taken)
    assert all(21 <= len(number) <= 40 for number in taken)
    assert int(parent.first_number) < int(taken[0])
    assert parent.last_number == parent.log[-1].sequence_number
    assert int(parent.last_number) < int(child.first_number) < int(taken[-1])


def test_a_closed_shard_without_records_ends_where_it_started() -> None:
    stream = stream_of()
    (shard,) = stream.open
    stream.roll_over(START)
    assert shard.last_number == shard.first_number


def test_a_disabled_stream_has_no_open_shard_and_is_gone_after_a_day() -> None:
    stream = stream_of(partitions=2)
    insert(stream, "a")
    stream.disable(START + HOUR)
    assert stream.status == "DISABLED"
    assert stream.open == []
    assert all(shard.closed for shard in stream.shards.values())
    insert(stream, "b", START + 2 * HOUR)
    assert sum(len(shard.log) for shard in stream.shards.values()) == 1
    stream.settle(START + 24 * HOUR)
    assert not stream.is_gone
    stream.settle(START + 25 * HOUR + 1)
    assert stream.is_gone


def test_a_write_that_changes_nothing_leaves_no_record() -> None:
    stream = stream_of()
    item = {"id": {"S": "a"}}
    stream.append(Change(item, item, item), "us-east-1", START)
    assert stream.open[0].log == []


def test_a_listing_continues_after_any_id() -> None:
    stream = stream_of(partitions=5)
    stream.roll_over(START)
    every = stream.listing("", 100)
    assert len(every) == 10
    paged, after = [], ""
    while page := stream.listing(after, 3):
        paged += page
        after = page[-1].shard_id
    assert paged == every


@pytest.mark.parametrize(
    "settings",
    [{"partitions": 0}, {"rollover_seconds": 0}, {"retention_seconds": float("inf")}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    (name,) = settings
    with pytest.raises(ConfigurationError, match=f"{name}="):
        TableStreamSettings(**settings)  # type: ignore[arg-type]
