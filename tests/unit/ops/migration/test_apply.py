"""Test overwriting a stopped app's positions, and errors if a client claims a shard."""

from __future__ import annotations

import pytest

from kinesumer.errors import CorruptRowError, KinesumerError, StreamRecreatedError
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import Start
from kinesumer.model.times import time_text
from kinesumer.ops.migration.apply import write
from kinesumer.ops.migration.plan import ResumePoint, StreamPlan, plan_stream
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.wire import admin_writes, rows, writes
from tests.support.kcl_fleet import ORDERS, S0, S1, World

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
    await world.store.write(writes.claim("a", shard(world), ME, "nonce"))
    key = writes.shard_row_key("a", shard(world))
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
            await plain(writes.claim("a", shard(world), ME, "nonce"))
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
    key = writes.shard_row_key("a", shard(world))
    await world.store.write(Write(key, Compare("pk", "exists"), {"epoch": "seven"}))
    with pytest.raises(CorruptRowError, match="attribute epoch"):
        await planned(world, first=ResumePoint(NEW))
