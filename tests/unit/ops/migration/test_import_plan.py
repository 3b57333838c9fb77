"""Test planning and writing an import, also with missing generations of shards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesumer.errors import CorruptRowError, KinesumerError, StreamRecreatedError
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Shard, Start
from kinesumer.model.times import time_text
from kinesumer.ops.migration.import_plan import (
    ResumePoint,
    StreamPlan,
    children_of,
    create_rows,
    plan_stream,
    write,
)
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.wire import admin_writes, rows, shard_writes
from tests.support.kcl_fleet import ORDERS, S0, S1, World
from tests.support.lineage import histories

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


OLD, NEW = Position("1"), Position("2", 3)
ME = MemberRow("c1", "mine")


async def planned(world: World, **marks: ResumePoint) -> StreamPlan:
    found = {S0: marks["first"], S1: marks.get("second", ResumePoint())}
    return await plan_stream(world.context(), await world.open(ORDERS), found)


async def imported() -> World:
    """Return a world in which app "a" has position OLD in the first shard."""
    world = World()
    await write(world.context(), await planned(world, first=ResumePoint(OLD)))
    return world


def shard(world: World, shard_id: str = S0) -> ShardRow:
    found = map(rows.read_shard, world.store.rows(rows.shard_partition("a", ORDERS)))
    return next(row for row in found if row.key.shard_id == shard_id)


def stream(world: World) -> StreamRow:
    row = world.store.get_now(rows.stream_key("a", ORDERS))
    assert row is not None
    return rows.read_stream(row)


async def test_a_row_gets_its_position_and_loses_its_dead_owner_but_no_pause() -> None:
    world = await imported()
    await world.store.write(shard_writes.claim("a", shard(world), ME, "nonce"))
    key = shard_writes.shard_row_key("a", shard(world))
    await world.store.write(admin_writes.pause(key, "a deploy"))
    new = await planned(world, first=ResumePoint(NEW))
    assert [change.action for change in new.changes[:2]] == ["change", "keep"]
    await write(world.context(), new)
    row = shard(world)
    expected = (Position("2"), "", 2, True)
    assert (row.position, row.owner, row.epoch, row.ready) == expected
    assert (row.paused, row.pause_reason) == (True, "a deploy")
    assert stream(world).baseline


async def test_an_ended_shard_is_opened_again_and_its_children_wait() -> None:
    world = World()
    second = ResumePoint(ended=True)
    before = await planned(world, first=ResumePoint(OLD), second=second)
    await write(world.context(), before)
    child = before.changes[2].row
    assert child.ready
    await write(world.context(), await planned(world, first=ResumePoint(OLD)))
    assert not shard(world, S1).ended
    assert not shard(world, child.key.shard_id).ready


async def test_an_end_of_an_open_shard_is_a_problem() -> None:
    world = World()
    leaf = next(s for s in world.kinesis.stream("orders").open).shard.shard_id
    points = {S0: ResumePoint(OLD), leaf: ResumePoint(ended=True)}
    plan = await plan_stream(world.context(), await world.open(ORDERS), points)
    [problem] = [text for text in plan.problems if text.startswith(leaf)]
    assert "said to be read to its end, but Kinesis lists it as open" in problem


async def test_a_start_in_the_future_is_a_problem_with_both_times() -> None:
    world = World()
    tomorrow = Start(type="AT_TIMESTAMP", timestamp=world.clock.wall() + 86_400)
    plan = await planned(world, first=ResumePoint(start=tomorrow))
    [problem] = [text for text in plan.problems if text.startswith(S0)]
    assert tomorrow.timestamp is not None
    assert f"the start {time_text(tomorrow.timestamp)} is in the future" in problem


async def test_the_ending_number_of_a_closed_shard_is_its_end() -> None:
    world = World()
    closed = world.kinesis.stream("orders").shard(S1).shard
    assert closed.ending_sequence_number is not None
    ending = ResumePoint(Position(closed.ending_sequence_number))
    plan = await planned(world, first=ResumePoint(OLD), second=ending)
    assert (plan.problems, plan.notes) == ([], [])
    assert plan.changes[1].row.ended
    assert plan.changes[2].row.ready


async def test_a_claim_in_the_middle_of_an_import_is_an_error() -> None:
    world = await imported()
    new = await planned(world, first=ResumePoint(NEW))
    plain = world.store.write

    async def claimed(change: Write) -> WriteResult:
        done = await plain(change)
        if change.replace:
            await plain(shard_writes.claim("a", shard(world), ME, "nonce"))
        return done

    world.store.write = claimed  # type: ignore[assignment, method-assign]
    with pytest.raises(
        KinesumerError, match=f"the rows of {S0} have changed after they were written"
    ):
        await write(world.context(), new)
    assert not stream(world).baseline


async def test_positions_of_a_recreated_stream_are_not_written() -> None:
    world = await imported()
    world.kinesis.stream("orders").created_at += 60
    with pytest.raises(StreamRecreatedError):
        await planned(world, first=ResumePoint(OLD))


async def test_a_corrupt_row_is_not_overwritten() -> None:
    world = await imported()
    key = shard_writes.shard_row_key("a", shard(world))
    await world.store.write(Write(key, Compare("pk", "exists"), {"epoch": "seven"}))
    with pytest.raises(CorruptRowError, match="attribute epoch"):
        await planned(world, first=ResumePoint(NEW))
