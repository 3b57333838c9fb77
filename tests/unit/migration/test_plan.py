"""Marks of shards become rows: also where generations are missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.migration.plan import ResumePoint, children_of, create_rows
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from tests.unit.core.test_lineage import histories

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
HALF = HASH_KEYS // 2
P = Shard("shardId-0", 0, HASH_KEYS - 1, closed=True)
"""A shard, its two children, and the child that these were merged to."""
C1 = Shard("shardId-1", 0, HALF - 1, ("shardId-0",), closed=True)
C2 = Shard("shardId-2", HALF, HASH_KEYS - 1, ("shardId-0",), closed=True)
G = Shard("shardId-3", 0, HASH_KEYS - 1, ("shardId-1", "shardId-2"))
ALL = [P, C1, C2, G]
READ = ResumePoint(Position("7"))
ENDED = ResumePoint(ended=True)


def states(marks: dict[str, ResumePoint], shards: list[Shard] = ALL) -> str:
    """Return, by shard: ended, waiting, or read."""
    letters = {(True, True): "e", (True, False): "e", (False, False): "w"}
    rows = create_rows(ARN, shards, marks).rows
    return "".join(letters.get((row.ended, row.ready), "r") for row in rows)


def test_what_comes_before_a_mark_was_read_and_what_comes_after_is_new() -> None:
    assert states({"shardId-1": READ, "shardId-2": READ}) == "errw"
    assert states({"shardId-3": READ}) == "eeer"
    assert states({"shardId-0": READ}) == "rwww"
    assert states({"shardId-0": ENDED}) == "errw"


def test_a_child_waits_until_both_parents_have_ended() -> None:
    marks = {"shardId-1": ENDED, "shardId-2": READ, "shardId-3": ResumePoint()}
    assert states(marks) == "eerw"
    assert states(marks | {"shardId-2": ENDED}) == "eeer"


def test_a_generation_between_two_marks_is_read_if_the_first_is_not_ended() -> None:
    assert states({"shardId-0": READ, "shardId-3": READ}) == "rwww"
    assert states({"shardId-0": ENDED, "shardId-3": READ}) == "eeer"


def test_new_children_are_read_from_their_beginning() -> None:
    at = Start(type="AT_TIMESTAMP", timestamp=5.0)
    rows = create_rows(ARN, ALL, {"shardId-0": ResumePoint(start=at)}).rows
    assert [row.start for row in rows] == [at, *[Start.TRIM_HORIZON] * 3]
    assert rows[3].parents == {"shardId-1", "shardId-2"}


def test_shards_of_which_nothing_is_known_are_named() -> None:
    other = Shard("shardId-9", 0, HASH_KEYS - 1)
    layout = create_rows(ARN, [other], {"shardId-3": READ, "shardId-2": ENDED})
    assert layout.uncovered == ["shardId-9"]
    assert layout.expired == ["shardId-2", "shardId-3"]


def test_a_parent_that_kinesis_has_forgotten_holds_nobody_up() -> None:
    assert states({"shardId-1": READ, "shardId-2": ENDED}, [C1, C2, G]) == "rew"
    assert states({"shardId-3": READ}, [G]) == "r"


@given(histories(), st.data())
def test_however_far_a_fleet_has_come_its_marks_tell_which_shards_have_ended(
    shards: list[Shard], data: st.DataObject
) -> None:
    """A fleet ends parents before children, and may forget those whose children it has
    marks of, as KCL deletes their leases; it may not have met children yet."""
    children = children_of(shards)
    ended: dict[str, bool] = {}
    marks: dict[str, ResumePoint] = {}
    for shard in shards:  # parents come first
        begun = all(ended[parent] for parent in shard.parents)
        closed = shard.shard_id in children
        ended[shard.shard_id] = begun and closed and data.draw(st.booleans())
        if begun or data.draw(st.booleans()):
            marks[shard.shard_id] = ResumePoint(ended=ended[shard.shard_id])
    for shard_id in list(marks):
        born = children.get(shard_id, ())
        forgettable = ended[shard_id] and all(child in marks for child in born)
        if forgettable and data.draw(st.booleans()):
            del marks[shard_id]
    layout = create_rows(ARN, shards, marks)
    assert not (layout.uncovered or layout.expired)
    for row, shard in zip(layout.rows, shards, strict=True):
        assert row.ended == ended[shard.shard_id]
        assert row.ready == all(ended[parent] for parent in shard.parents)
