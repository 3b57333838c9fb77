"""The shard graph: complete listings, first rows, repairs and what a plan counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.core import lineage
from kinesumer.core.lineage import Origin, Repairs
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, ChildShard, Shard, ShardKey, Start

if TYPE_CHECKING:
    from collections.abc import Sequence

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SINCE = Start(type="AT_TIMESTAMP", timestamp=5.0)
STREAM = StreamRow(ARN, 1.0, SINCE)
HALF = HASH_KEYS // 2
LAST = HASH_KEYS - 1

PARENT = Shard("a", 0, LAST, closed=True)
LOW = Shard("low", 0, HALF - 1, ("a",))
HIGH = Shard("high", HALF, LAST, ("a",))
SPLIT = [PARENT, LOW, HIGH]
MERGED = Shard("m", 0, LAST, ("low", "high"))


def row(shard: Shard, *, ended: bool = False, ready: bool = False) -> ShardRow:
    made = lineage.child_row(ARN, shard)
    return made._replace(ended=ended, ready=ready)


def ids(rows: Sequence[ShardRow]) -> list[str]:
    return [row.key.shard_id for row in rows]


def test_leaves_are_the_shards_without_children_by_hash_key() -> None:
    assert lineage.leaves([HIGH, PARENT, LOW]) == [LOW, HIGH]


@pytest.mark.parametrize(
    ("listing", "complete"),
    [
        ([Shard("a", 0, LAST)], True),
        (SPLIT, True),
        ([*SPLIT, MERGED], True),
        ([LOW, HIGH], True),
        ([], False),
        ([PARENT, LOW], False),
        ([PARENT, HIGH], False),
        ([LOW, HIGH, Shard("x", HALF, LAST)], False),
        ([Shard("x", 1, LAST)], False),
    ],
)
def test_a_listing_counts_only_if_its_leaves_tile_the_hash_space(
    listing: list[Shard], complete: bool
) -> None:
    assert lineage.is_complete(listing) is complete


def test_a_listing_is_current_if_it_knows_the_newest_row() -> None:
    rows = [row(shard) for shard in SPLIT]
    assert lineage.is_current(SPLIT, rows)
    assert lineage.is_current(SPLIT, [])
    assert not lineage.is_current([PARENT], [row(LOW)])
    assert not lineage.is_current([PARENT, LOW], [])


def test_children_open_when_the_parents_read_after_them_have_ended() -> None:
    child, parents = row(MERGED), [row(LOW, ended=True), row(HIGH, ended=True)]
    assert lineage.ready_children([child], parents, ()) == [child]
    assert lineage.ready_children([child], parents[:1], ()) == [child]
    assert lineage.ready_children([child], parents[:1], {"high"}) == []
    assert lineage.ready_children([child], [row(LOW), parents[1]], ()) == []
    assert lineage.ready_children([child._replace(ready=True)], parents, ()) == []


# --- first rows ---


def test_open_shards_begin_at_the_streams_start_and_can_be_claimed() -> None:
    first = lineage.first_rows(Origin(STREAM), [Shard("a", 0, LAST)])
    assert first == [ShardRow(ShardKey(ARN, "a"), 0, LAST, SINCE, ready=True)]


def test_children_wait_for_their_parents_and_have_the_same_start() -> None:
    rows = {r.key.shard_id: r for r in lineage.first_rows(Origin(STREAM), SPLIT)}
    assert {name: r.ready for name, r in rows.items()} == {
        "a": True,
        "low": False,
        "high": False,
    }
    assert {r.start for r in rows.values()} == {SINCE}
    assert rows["low"].parents == {"a"}


def test_shards_closed_before_the_start_have_ended_and_their_children_are_ready() -> (
    None
):
    origin = Origin(STREAM, before_start=frozenset({"a"}))
    first = lineage.first_rows(origin, SPLIT)
    assert [(r.ended, r.ready) for r in first] == [
        (True, True),
        (False, True),
        (False, True),
    ]


def test_an_expired_parent_counts_as_ended() -> None:
    assert all(r.ready for r in lineage.first_rows(Origin(STREAM), [LOW, HIGH]))


def test_checkpoints_of_go_are_taken_over_even_in_a_closed_shard() -> None:
    origin = Origin(STREAM, frozenset({"a"}), {"a": Position("7")})
    rows = {r.key.shard_id: r for r in lineage.first_rows(origin, SPLIT)}
    assert rows["a"].position == Position("7")
    assert not rows["a"].ended
    assert not rows["low"].ready
    assert rows["low"].start == Start.TRIM_HORIZON


# --- repairs ---


def test_rows_in_step_need_no_repair() -> None:
    rows = [row(PARENT, ready=True), row(LOW), row(HIGH)]
    assert lineage.repairs(ARN, rows, SPLIT) == Repairs([], [], [])
    assert not any(lineage.repairs(ARN, rows, SPLIT))


def test_a_crash_before_the_children_were_created_is_repaired() -> None:
    repairs = lineage.repairs(ARN, [row(PARENT, ready=True)], SPLIT)
    assert ids(repairs.create) == ["low", "high"]
    assert not any(child.ready for child in repairs.create)
    assert {child.start for child in repairs.create} == {Start.TRIM_HORIZON}


def test_children_of_a_parent_that_has_ended_are_created_ready() -> None:
    repairs = lineage.repairs(ARN, [row(PARENT, ended=True, ready=True)], SPLIT)
    assert [child.ready for child in repairs.create] == [True, True]


def test_a_crash_between_end_and_ready_is_repaired() -> None:
    rows = [row(PARENT, ended=True, ready=True), row(LOW), row(HIGH, ready=True)]
    assert ids(lineage.repairs(ARN, rows, SPLIT).ready) == ["low"]


def test_a_merged_shard_waits_for_both_parents() -> None:
    listing = [*SPLIT, MERGED]
    rows = [
        row(PARENT, ended=True, ready=True),
        row(LOW, ended=True, ready=True),
        row(HIGH, ready=True),
        row(MERGED),
    ]
    assert lineage.repairs(ARN, rows, listing) == Repairs([], [], [])
    rows[2] = rows[2]._replace(ended=True)
    assert ids(lineage.repairs(ARN, rows, listing).ready) == ["m"]


def test_grandchildren_wait_for_children_that_are_created_with_them() -> None:
    repairs = lineage.repairs(ARN, [row(PARENT, ended=True)], [*SPLIT, MERGED])
    assert {r.key.shard_id: r.ready for r in repairs.create} == {
        "low": True,
        "high": True,
        "m": False,
    }


def test_a_forgotten_shard_that_has_ended_is_pruned_and_only_that() -> None:
    rows = [row(PARENT, ended=True, ready=True), row(LOW, ready=True), row(HIGH)]
    repairs = lineage.repairs(ARN, rows, [LOW])
    assert ids(repairs.prune) == ["a"]
    assert ids(repairs.ready) == ["high"]


def test_a_pruned_shard_is_not_made_again_by_a_listing_that_is_behind() -> None:
    rows = [row(LOW, ready=True), row(HIGH, ready=True)]
    assert lineage.repairs(ARN, rows, SPLIT).create == []


def test_the_row_of_a_grandparent_is_not_made_again_either() -> None:
    assert not lineage.repairs(ARN, [row(MERGED, ready=True)], [*SPLIT, MERGED]).create


def test_a_parent_that_neither_table_nor_kinesis_knows_counts_as_ended() -> None:
    assert ids(lineage.repairs(ARN, [row(LOW)], [LOW, HIGH]).ready) == ["low"]


def test_a_child_that_waits_proves_nothing_of_a_parent_without_a_row() -> None:
    # The owner of "high" made the row of the merged child before "low" had one.
    rows = [row(PARENT, ready=True), row(HIGH, ended=True, ready=True), row(MERGED)]
    repairs = lineage.repairs(ARN, rows, [*SPLIT, MERGED])
    assert ids(repairs.create) == ["low"]
    assert repairs.ready == []


def test_an_unreadable_row_is_not_made_again_nor_thought_to_have_ended() -> None:
    rows = [row(PARENT, ended=True, ready=True), row(HIGH, ended=True), row(MERGED)]
    repairs = lineage.repairs(ARN, rows, [*SPLIT, MERGED], unreadable={"low"})
    assert repairs == Repairs([], [], [])
    assert ids(lineage.repairs(ARN, rows, [*SPLIT, MERGED]).create) == ["low"]


def test_a_child_is_listed_as_its_parent_names_it() -> None:
    child = ChildShard("low", 0, 5, ("a",))
    assert lineage.as_shard(child) == Shard("low", 0, 5, ("a",))


def test_a_listing_that_ends_before_the_newest_row_proves_nothing() -> None:
    rows = [row(PARENT, ended=True, ready=True), row(LOW), row(HIGH, ready=True)]
    assert lineage.repairs(ARN, rows, [PARENT]) == Repairs([], [], [])


@st.composite
def histories(draw: st.DrawFn) -> list[Shard]:
    """Draw what a stream's listing is after some splits and merges."""
    shards = [Shard("s0", 0, LAST)]
    for step in range(draw(st.integers(0, 8))):
        open_ = lineage.leaves(shards)
        at = draw(st.integers(0, len(open_) - 1))
        name = f"s{len(shards)}"
        if step % 3 == 2 and at + 1 < len(open_):
            low, high = open_[at : at + 2]
            parents = (low.shard_id, high.shard_id)
            shards.append(Shard(name, low.first_hash, high.last_hash, parents))
        else:
            one = open_[at]
            middle = (one.first_hash + one.last_hash + 1) // 2
            parent = (one.shard_id,)
            shards.append(Shard(name, one.first_hash, middle - 1, parent))
            shards.append(Shard(f"s{len(shards)}", middle, one.last_hash, parent))
    return shards


@given(histories(), st.data())
def test_repairing_twice_changes_no_more_than_once(
    listing: list[Shard], data: st.DataObject
) -> None:
    known = data.draw(st.sets(st.sampled_from(listing)))
    ended = data.draw(st.sets(st.sampled_from(listing)))
    rows = [row(shard, ended=shard in ended) for shard in known]
    repairs = lineage.repairs(ARN, rows, listing)
    ready = set(ids(repairs.ready))
    after = [r._replace(ready=r.ready or r.key.shard_id in ready) for r in rows]
    assert not any(lineage.repairs(ARN, after + repairs.create, listing))


@given(histories())
def test_whatever_happened_the_plan_counts_the_open_shards(
    listing: list[Shard],
) -> None:
    assert lineage.is_complete(listing)
    rows = [row(shard) for shard in listing]
    starts = [leaf.first_hash for leaf in lineage.leaves(listing)]
    assert lineage.open_shard_starts(rows) == starts


def test_shards_that_have_ended_count_for_no_plan() -> None:
    assert lineage.open_shard_starts([row(LOW, ended=True), row(HIGH)]) == [HALF]
