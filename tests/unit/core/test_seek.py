"""The order of a seek: parents before children, and who has to wait for whom."""

from __future__ import annotations

from kinesumer.core import seek
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def row(shard_id: str, *parents: str, ended: bool = False) -> ShardRow:
    key = ShardKey(ARN, shard_id)
    made = ShardRow(key, 0, HASH_KEYS - 1, Start.TRIM_HORIZON, frozenset(parents))
    return made._replace(ended=ended)


FAMILY = [row("m", "b", "c"), row("c", "a"), row("b", "a"), row("a")]
ALL = {"a", "b", "c", "m"}


def ids(steps: list[list[seek.Step]]) -> list[set[str]]:
    return [{step.row.key.shard_id for step in generation} for generation in steps]


def waiting(steps: list[list[seek.Step]]) -> set[str]:
    found = (step for generation in steps for step in generation)
    return {step.row.key.shard_id for step in found if step.waits}


def test_parents_come_before_their_children() -> None:
    assert ids(seek.steps(FAMILY, (), ALL)) == [{"a"}, {"b", "c"}, {"m"}]


def test_children_wait_for_parents_that_are_sought_too() -> None:
    ended = [row._replace(ended=True, ready=True) for row in FAMILY]
    assert waiting(seek.steps(ended, (), ALL)) == {"b", "c", "m"}


def test_children_of_ended_parents_that_stay_so_dont_wait() -> None:
    rows = [row("a", ended=True), row("b", "a"), row("c", "a")]
    found = seek.steps(rows, (), {"b", "c"})
    assert (ids(found), waiting(found)) == ([{"b", "c"}], set())


def test_a_child_waits_for_a_parent_that_is_still_read_though_not_sought() -> None:
    rows = [row("a"), row("b", "a")]
    assert waiting(seek.steps(rows, (), {"b"})) == {"b"}


def test_parents_without_a_row_have_expired() -> None:
    found = seek.steps([row("b", "gone")], (), {"b"})
    assert waiting(found) == set()


def test_shards_without_a_row_get_one_in_their_turn() -> None:
    found = seek.steps([row("a")], [row("b", "a")], {"a", "b"})
    assert [[step.is_new for step in steps] for steps in found] == [[False], [True]]
    assert waiting(found) == {"b"}


def test_parents_that_go_in_a_ring_are_sought_all_the_same() -> None:
    rows = [row("a", "b"), row("b", "a"), row("c", "b")]
    assert ids(seek.steps(rows, (), {"a", "b", "c"})) == [{"a", "b", "c"}]
