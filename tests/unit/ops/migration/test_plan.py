"""Test that resume points become rows, even if generations of shards are missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.ops.migration.plan import ResumePoint, children_of, create_rows
from tests.unit.core.test_lineage import histories

ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"
HALF = HASH_KEYS // 2
# A shard, its two children, and the shard that they were merged into.
P = Shard("shardId-0", 0, HASH_KEYS - 1, ending_sequence_number="9")
C1 = Shard("shardId-1", 0, HALF - 1, ("shardId-0",), ending_sequence_number="9")
C2 = Shard("shardId-2", HALF, HASH_KEYS - 1, ("shardId-0",), ending_sequence_number="9")
G = Shard("shardId-3", 0, HASH_KEYS - 1, ("shardId-1", "shardId-2"))
ALL = [P, C1, C2, G]
READ = ResumePoint(Position("7"))
ENDED = ResumePoint(ended=True)


def states(marks: dict[str, ResumePoint], shards: list[Shard] = ALL) -> str:
    """Return a letter for each shard: e(nded), w(aiting) or r(ead)."""
    letters = {(True, True): "e", (True, False): "e", (False, False): "w"}
    rows = create_rows(ARN, shards, marks).rows
    return "".join(letters.get((row.ended, row.ready), "r") for row in rows)


def test_ancestors_of_a_resume_point_were_read_and_descendants_are_new() -> None:
    assert states({"shardId-1": READ, "shardId-2": READ}) == "errw"
    assert states({"shardId-3": READ}) == "eeer"
    assert states({"shardId-0": READ}) == "rwww"
    assert states({"shardId-0": ENDED}) == "errw"


def test_a_generation_between_two_points_is_read_unless_the_first_ended() -> None:
    assert states({"shardId-0": READ, "shardId-3": READ}) == "rwww"
    assert states({"shardId-0": ENDED, "shardId-3": READ}) == "eeer"


def test_new_children_are_read_from_their_beginning() -> None:
    at = Start(type="AT_TIMESTAMP", timestamp=5.0)
    rows = create_rows(ARN, ALL, {"shardId-0": ResumePoint(start=at)}).rows
    assert [row.start for row in rows] == [at, *[Start.TRIM_HORIZON] * 3]
    assert rows[3].parents == {"shardId-1", "shardId-2"}


def test_shards_without_a_related_resume_point_are_reported() -> None:
    other = Shard("shardId-9", 0, HASH_KEYS - 1)
    layout = create_rows(ARN, [other], {"shardId-3": READ, "shardId-2": ENDED})
    assert layout.uncovered == ["shardId-9"]
    assert layout.expired == ["shardId-2", "shardId-3"]


@given(histories(), st.data())
def test_resume_points_of_any_fleet_show_which_shards_have_ended(
    shards: list[Shard], data: st.DataObject
) -> None:
    """A fleet ends parents before children. Like KCL, it may delete the mark of a shard
    that has ended if all children have marks; new children may have no marks yet."""
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
