"""Positions written over those of an app at rest, and of one that isn't."""

from __future__ import annotations

import pytest

from kinesumer.errors import (
    CorruptRowError,
    KinesumerError,
    StreamRecreatedError,
)
from kinesumer.migration.apply import write
from kinesumer.migration.plan import ResumePoint, StreamPlan, plan_stream
from kinesumer.model.positions import Position
from kinesumer.model.rows import MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import Start
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.wire import admin_writes, rows, writes
from tests.unit.migration.fleet import ORDERS, S0, S1, World

OLD, NEW = Position("1"), Position("2", 3)
ME = MemberRow("c1", "mine")


async def drafted(world: World, **marks: ResumePoint) -> StreamPlan:
    found = {S0: marks["first"], S1: marks.get("second", ResumePoint())}
    return await plan_stream(world.context(), await world.open(ORDERS), found)


def shard(world: World, shard_id: str = S0) -> ShardRow:
    found = map(rows.read_shard, world.store.rows(rows.shard_partition("a", ORDERS)))
    return next(row for row in found if row.key.shard_id == shard_id)


def stream(world: World) -> StreamRow:
    row = world.store.get_now(rows.stream_key("a", ORDERS))
    assert row is not None
    return rows.read_stream(row)


async def test_a_row_gets_its_position_and_loses_its_dead_owner_but_no_pause() -> None:
    world = World()
    await write(
        world.context(), (await drafted(world, first=ResumePoint(OLD))).stream_changes
    )
    await world.store.write(writes.claim("a", shard(world), ME, "nonce"))
    key = writes.shard_row_key("a", shard(world))
    await world.store.write(admin_writes.pause(key, "a deploy"))
    new = await drafted(world, first=ResumePoint(NEW))
    assert [change.action for change in new.stream_changes.changes[:2]] == [
        "change",
        "keep",
    ]
    await write(world.context(), new.stream_changes)
    row = shard(world)
    assert (row.position, row.owner, row.epoch, row.ready) == (
        Position("2"),
        "",
        2,
        True,
    )
    assert (row.paused, row.pause_reason) == (True, "a deploy")
    assert stream(world).baseline


async def test_an_ended_shard_is_opened_again_and_its_children_wait() -> None:
    world = World()
    second = ResumePoint(ended=True)
    before = await drafted(world, first=ResumePoint(OLD), second=second)
    await write(world.context(), before.stream_changes)
    child = before.stream_changes.changes[2].row
    assert child.ready
    await write(
        world.context(), (await drafted(world, first=ResumePoint(OLD))).stream_changes
    )
    assert not shard(world, S1).ended
    assert not shard(world, child.key.shard_id).ready


async def test_a_client_that_claims_in_the_middle_is_told_of() -> None:
    world = World()
    await write(
        world.context(), (await drafted(world, first=ResumePoint(OLD))).stream_changes
    )
    new = await drafted(world, first=ResumePoint(NEW))
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
        await write(world.context(), new.stream_changes)
    assert not stream(world).baseline


async def test_a_stream_made_anew_is_no_place_for_positions() -> None:
    world = World()
    await write(
        world.context(), (await drafted(world, first=ResumePoint(OLD))).stream_changes
    )
    world.kinesis.stream("orders").created_at += 60
    with pytest.raises(StreamRecreatedError):
        await drafted(world, first=ResumePoint(OLD))


async def test_a_row_that_cannot_be_read_is_not_written_over() -> None:
    world = World()
    await write(
        world.context(), (await drafted(world, first=ResumePoint(OLD))).stream_changes
    )
    key = writes.shard_row_key("a", shard(world))
    await world.store.write(Write(key, Compare("pk", "exists"), {"epoch": "seven"}))
    with pytest.raises(CorruptRowError, match="attribute epoch"):
        await drafted(world, first=ResumePoint(NEW))


async def test_latest_is_the_time_of_now_for_each_shard() -> None:
    world = World()
    found = await drafted(world, first=ResumePoint(start=Start.LATEST))
    start = found.stream_changes.changes[0].row.start
    assert start == Start(type="AT_TIMESTAMP", timestamp=world.clock.wall())
