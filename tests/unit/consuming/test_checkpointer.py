"""Positions on their way to the store: when, how often, and what refusals tell."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.consuming.checkpointer import PARALLEL_COMMITS, Checkpointer
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows, writes
from tests.support.checkpoints import FakeOwner
from tests.support.world import (
    APP,
    ARN,
    FaultyStore,
    World,
    batch_of,
    hold,
    in_virtual_time,
    shard_row,
)

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.rows import ShardRow


class Desk:
    """A checkpointer of shards whose records the test finishes."""

    def __init__(self, world: World, *, shards: int = 1, **config: Any) -> None:
        self.world = world
        self.store = FaultyStore(world.table)
        limit = config.get("max_uncommitted_records", 100_000)
        self.owned_shards = [
            hold(shard_row()._replace(key=ShardKey(ARN, f"s{n:03}")), limit)
            for n in range(shards)
        ]
        for owned in self.owned_shards:
            owned.progress.deliver(batch_of(owned, *range(1, 10)).records)
        self.owner = FakeOwner(self.owned_shards)
        self.lost = self.owner.rejected
        context = world.context(store=self.store, **config)
        self.checkpointer = Checkpointer(context, self.owner)

    async def begin(self) -> Desk:
        for owned in self.owned_shards:
            create = writes.create_shard(APP, owned.row)
            await self.world.table.write(create)
            await self.change(owned, owner="s1")
        self.running = self.world.loop.create_task(self.checkpointer.run())
        return self

    async def change(self, owned: OwnedShard, **values: Any) -> None:
        key = rows.shard_key(APP, owned.key, 0)
        await self.world.table.write(Write(key, Compare("pk", "exists"), values))

    def done(self, count: int) -> None:
        for owned in self.owned_shards:
            owned.progress.done_through(count)

    def row(self, number: int = 0) -> ShardRow:
        return self.world.shard_rows()[f"s{number:03}"]


@in_virtual_time
async def test_what_is_done_is_stored_every_five_seconds(world: World) -> None:
    desk = await Desk(world).begin()
    desk.done(3)
    await asyncio.sleep(4.9)
    assert desk.row().position is None
    await asyncio.sleep(0.2)
    assert desk.row().position == Position("3")
    assert desk.owned_shards[0].progress.uncommitted == 6
    assert desk.owner.syncs > 0


@in_virtual_time
async def test_without_progress_nothing_is_written(world: World) -> None:
    desk = await Desk(world, shards=2).begin()
    await asyncio.sleep(60)
    assert desk.store.sent == []
    desk.owned_shards[1].progress.done_through(1)
    await asyncio.sleep(60)
    assert len(desk.store.sent) == 1


@in_virtual_time
async def test_one_write_a_shard_and_interval_whatever_was_done(world: World) -> None:
    desk = await Desk(world, shards=3).begin()
    for count in range(1, 10):
        desk.done(count)
        await asyncio.sleep(0.5)
    await asyncio.sleep(1)
    assert len(desk.store.sent) == 3


@in_virtual_time
async def test_shards_with_much_to_store_do_not_wait_for_the_interval(
    world: World,
) -> None:
    desk = await Desk(world, shards=2, max_uncommitted_records=8).begin()
    desk.owned_shards[0].progress.done_through(4)
    desk.owned_shards[1].progress.done_through(3)
    desk.checkpointer.commit_soon()
    await asyncio.sleep(0.1)
    assert desk.row(0).position == Position("4")
    assert desk.row(1).position is None


@in_virtual_time
async def test_shards_in_a_hurry_do_not_put_off_the_others_turn(world: World) -> None:
    desk = await Desk(world, shards=2, max_uncommitted_records=4).begin()
    desk.owned_shards[1].progress.done_through(1)
    for count in range(2, 9, 2):
        desk.owned_shards[0].progress.done_through(count)
        desk.checkpointer.commit_soon()
        await asyncio.sleep(2)
    assert desk.row(0).position == Position("8")
    assert desk.row(1).position == Position("1")


@in_virtual_time
async def test_positions_only_go_forward(world: World) -> None:
    desk = await Desk(world).begin()
    await desk.change(desk.owned_shards[0], sequence_number="8")
    desk.done(3)
    await asyncio.sleep(6)
    assert desk.row().position == Position("8")
    assert desk.lost == []


@pytest.mark.parametrize("how", ["lost", "unanswered", "throttled"])
@in_virtual_time
async def test_a_commit_that_fails_is_made_up_for_with_the_next(
    world: World, how: str
) -> None:
    desk = await Desk(world).begin()
    desk.done(3)
    desk.store.spoil(how, "sequence_number")
    await asyncio.sleep(13)
    assert desk.row().position == Position("3")
    assert desk.owned_shards[0].position is None
    assert desk.lost == []


@in_virtual_time
async def test_a_failing_store_is_asked_in_uneven_steps(world: World) -> None:
    desk = await Desk(world).begin()
    desk.store.down = True
    desk.done(3)
    await asyncio.sleep(600)
    desk.store.down = False
    await asyncio.sleep(7.5)
    assert desk.row().position == Position("3")


@pytest.mark.parametrize(
    "taken", [{"owner": "other"}, {"epoch": 2}, {"owner": "other", "epoch": 2}]
)
@in_virtual_time
async def test_the_late_write_of_a_former_owner_is_refused_and_told(
    world: World, taken: dict[str, Any]
) -> None:
    desk = await Desk(world).begin()
    desk.done(3)
    await desk.change(desk.owned_shards[0], **taken)
    await asyncio.sleep(6)
    assert desk.lost == desk.owned_shards
    assert desk.row().position is None
    await asyncio.sleep(60)
    assert len(desk.store.sent) == 1


@pytest.mark.parametrize("claimed_by_another", [False, True])
@in_virtual_time
async def test_a_commit_that_a_release_overtakes_loses_nothing(
    world: World, claimed_by_another: bool
) -> None:
    desk = await Desk(world).begin()
    (owned,) = desk.owned_shards
    desk.done(3)
    desk.store.latency = 0.1
    task = world.loop.create_task(desk.checkpointer.commit_all())
    await asyncio.sleep(0.05)
    release = writes.release(APP, owned.row, Position("3"))
    assert (await world.table.write(release)).applied
    if claimed_by_another:
        owned.stored(Position("3"))
        await desk.change(owned, owner="other", epoch=2)
    assert await task == []
    assert desk.lost == []


@in_virtual_time
async def test_what_a_later_owner_stored_is_not_ours(world: World) -> None:
    desk = await Desk(world).begin()
    desk.done(3)
    (owned,) = desk.owned_shards
    await desk.change(owned, owner="other", epoch=2, sequence_number="9")
    await asyncio.sleep(6)
    assert desk.lost == [owned]


@in_virtual_time
async def test_the_late_write_to_a_pruned_row_is_refused_and_told(
    world: World,
) -> None:
    desk = await Desk(world).begin()
    desk.done(3)
    world.table.restore([], "table-1")
    await asyncio.sleep(6)
    assert desk.lost == desk.owned_shards


@in_virtual_time
async def test_committing_on_request_returns_when_all_is_stored(world: World) -> None:
    desk = await Desk(world, shards=3).begin()
    desk.done(2)
    desk.store.down = True
    task = world.loop.create_task(desk.checkpointer.commit_all())
    await asyncio.sleep(4)
    assert not task.done()
    desk.store.down = False
    assert await task == []
    assert {row.position for row in world.shard_rows().values()} == {Position("2")}


@in_virtual_time
async def test_committing_on_request_names_the_shards_that_are_lost(
    world: World,
) -> None:
    desk = await Desk(world, shards=3).begin()
    desk.done(2)
    await desk.change(desk.owned_shards[1], epoch=9)
    assert await desk.checkpointer.commit_all() == [desk.owned_shards[1].key]
    assert desk.row(2).position == Position("2")


@in_virtual_time
async def test_only_so_many_commits_are_under_way_at_once(world: World) -> None:
    desk = await Desk(world, shards=3 * PARALLEL_COMMITS).begin()
    desk.store.latency = 0.1
    desk.done(1)
    began = world.clock.now()
    await desk.checkpointer.commit_all()
    assert world.clock.now() - began == pytest.approx(0.3, abs=0.01)


@in_virtual_time
async def test_what_is_done_while_a_commit_is_under_way_is_stored_by_the_next(
    world: World,
) -> None:
    desk = await Desk(world).begin()
    desk.store.latency = 0.1
    desk.done(1)
    task = world.loop.create_task(desk.checkpointer.commit_all())
    await asyncio.sleep(0.05)
    desk.done(2)
    await task
    assert desk.row().position == Position("1")
    assert desk.owned_shards[0].position == Position("2")
    await asyncio.sleep(6)
    assert desk.row().position == Position("2")
