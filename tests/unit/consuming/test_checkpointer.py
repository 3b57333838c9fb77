"""Test when positions are stored, and tips of quiet shards, which prove no loss."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.consuming.checkpointer import PARALLEL_COMMITS
from kinesumer.errors import StoreThrottledError
from kinesumer.model.positions import Position, Tip
from kinesumer.model.streams import Stream
from kinesumer.wire import shard_writes
from tests.support.checkpoints import CheckpointDesk
from tests.support.world import APP, World, batch_of, shard_row


async def test_positions_are_stored_every_five_seconds(world: World) -> None:
    desk = await CheckpointDesk(world).begin()
    desk.done(3)
    await asyncio.sleep(4.9)
    assert desk.row().position is None
    await asyncio.sleep(0.2)
    assert desk.row().position == Position("3")
    assert desk.owned_shards[0].progress.uncommitted == 6
    assert desk.owner.syncs > 0


async def test_each_interval_has_one_write_a_shard_that_made_progress(
    world: World,
) -> None:
    desk = await CheckpointDesk(world, shards=3).begin()
    await asyncio.sleep(60.1)
    assert desk.store.sent == []
    for count in range(1, 10):
        for owned in desk.owned_shards[:2]:
            owned.progress.done_through(count)
        await asyncio.sleep(0.5)
    await asyncio.sleep(60)
    assert len(desk.store.sent) == 2


async def test_more_active_shards_are_committed_less_often(world: World) -> None:
    """A hundredth of the limit is eight commits a second, of which all may go."""
    desk = await CheckpointDesk(world, shards=80, share=0.01).begin()
    for count in range(1, 10):
        desk.done(count)
        await asyncio.sleep(5)
    assert 0.7 * 8 * 45 < len(desk.store.sent) <= 8 * 45


async def test_much_to_store_does_not_wait_for_the_interval(world: World) -> None:
    desk = await CheckpointDesk(world, shards=2, max_uncommitted_records=8).begin()
    desk.owned_shards[0].progress.done_through(4)
    desk.owned_shards[1].progress.done_through(3)
    desk.checkpointer.commit_soon()
    await asyncio.sleep(0.1)
    assert desk.row(0).position == Position("4")
    assert desk.row(1).position is None


async def test_shards_in_a_hurry_do_not_put_off_the_others_turn(world: World) -> None:
    desk = await CheckpointDesk(world, shards=2, max_uncommitted_records=4).begin()
    desk.owned_shards[1].progress.done_through(1)
    for count in range(2, 9, 2):
        desk.owned_shards[0].progress.done_through(count)
        desk.checkpointer.commit_soon()
        await asyncio.sleep(2)
    assert desk.row(0).position == Position("8")
    assert desk.row(1).position == Position("1")


async def test_positions_only_go_forward(world: World) -> None:
    desk = await CheckpointDesk(world).begin()
    await desk.change(desk.owned_shards[0], sequence_number="8")
    desk.done(3)
    await asyncio.sleep(6)
    assert desk.row().position == Position("8")
    assert desk.lost == []


@pytest.mark.parametrize("how", ["lost", "unanswered", "throttled"])
async def test_a_commit_that_fails_is_made_up_for_with_the_next(
    world: World, how: str
) -> None:
    desk = await CheckpointDesk(world).begin()
    desk.done(3)
    desk.store.spoil(how, "sequence_number")
    await asyncio.sleep(13)
    assert desk.row().position == Position("3")
    assert desk.owned_shards[0].position is None
    assert desk.lost == []


async def test_a_failing_store_is_asked_in_uneven_steps(world: World) -> None:
    desk = await CheckpointDesk(world).begin()
    desk.store.down = True
    desk.done(3)
    await asyncio.sleep(600)
    desk.store.down = False
    await asyncio.sleep(7.5)
    assert desk.row().position == Position("3")


@pytest.mark.parametrize(
    "taken",
    [
        {"owner": "other"},
        {"epoch": 2},
        # The stored position is ahead of this owner's, but a later owner has stored it.
        {"owner": "other", "epoch": 2, "sequence_number": "9"},
    ],
)
async def test_a_late_write_of_a_former_owner_is_rejected(
    world: World, taken: dict[str, Any]
) -> None:
    desk = await CheckpointDesk(world).begin()
    desk.done(3)
    await desk.change(desk.owned_shards[0], **taken)
    before = desk.row()
    await asyncio.sleep(6)
    assert desk.lost == desk.owned_shards
    assert desk.row() == before
    await asyncio.sleep(60)
    assert len(desk.store.sent) == 1


@pytest.mark.parametrize("claimed_by_another", [False, True])
async def test_a_commit_that_a_release_overtakes_loses_nothing(
    world: World, claimed_by_another: bool
) -> None:
    desk = await CheckpointDesk(world).begin()
    (owned,) = desk.owned_shards
    desk.done(3)
    desk.store.latency = 0.1
    task = world.loop.create_task(desk.checkpointer.commit_all())
    await asyncio.sleep(0.05)
    release = shard_writes.release(APP, owned.row, Position("3"))
    assert (await world.table.write(release)).applied
    if claimed_by_another:
        owned.stored(Position("3"))
        await desk.change(owned, owner="other", epoch=2)
    assert await task == []
    assert desk.lost == []


async def test_a_late_write_to_a_pruned_row_is_rejected(world: World) -> None:
    desk = await CheckpointDesk(world).begin()
    desk.done(3)
    world.table.restore([], "table-1")
    await asyncio.sleep(6)
    assert desk.lost == desk.owned_shards


async def test_a_commit_on_request_returns_when_all_is_stored_or_lost(
    world: World,
) -> None:
    desk = await CheckpointDesk(world, shards=3).begin()
    desk.done(2)
    await desk.change(desk.owned_shards[1], epoch=9)
    desk.store.down = True
    task = world.loop.create_task(desk.checkpointer.commit_all())
    await asyncio.sleep(4)
    assert not task.done()
    desk.store.down = False
    assert await task == [desk.owned_shards[1].key]
    assert desk.row(0).position == desk.row(2).position == Position("2")


async def test_only_so_many_commits_are_under_way_at_once(world: World) -> None:
    desk = await CheckpointDesk(world, shards=3 * PARALLEL_COMMITS).begin()
    desk.store.latency = 0.1
    desk.done(1)
    began = world.clock.now()
    await desk.checkpointer.commit_all()
    assert world.clock.now() - began == pytest.approx(0.3, abs=0.01)


async def test_records_done_during_a_commit_wait_for_the_next(world: World) -> None:
    desk = await CheckpointDesk(world).begin()
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


AT_5 = Position("5")
HOUR = 3600.0
DAY = 24 * HOUR


class Quiet(CheckpointDesk):
    """A checkpointer of shards that have a stored position when they are claimed."""

    def __init__(
        self, world: World, shards: int = 1, position: Position | None = AT_5
    ) -> None:
        super().__init__(world, shards=shards, row=shard_row(position=position))

    def read(self, until: float) -> None:
        """Let the shards be read to their tips."""
        for owned in self.owned_shards:
            owned.caught_up(until, DAY)

    def tip(self, number: int = 0) -> Tip | None:
        return self.row(number).tip


async def test_the_tip_of_a_quiet_shard_is_stored_once_in_an_hour(world: World) -> None:
    quiet = await Quiet(world).begin()
    for minute in range(0, 181, 10):
        quiet.read(1e6 + 60 * minute)
        await asyncio.sleep(600)
    assert quiet.tip() == Tip(1e6 + 3 * HOUR, Position("5"))
    assert len(quiet.store.sent) == 4


async def test_few_tips_are_stored_at_a_time(world: World) -> None:
    quiet = await Quiet(world, 3 * PARALLEL_COMMITS).begin()
    quiet.read(1e6)
    await asyncio.sleep(6)
    assert len(quiet.store.sent) == PARALLEL_COMMITS
    await asyncio.sleep(60)
    assert len(quiet.store.sent) == 3 * PARALLEL_COMMITS


async def test_a_tip_comes_with_the_position_where_that_moves(world: World) -> None:
    quiet = await Quiet(world).begin()
    (owned,) = quiet.owned_shards
    owned.progress.deliver(batch_of(owned, 6, 7).records)
    quiet.read(1e6)
    owned.progress.done_through(1)
    await asyncio.sleep(6)
    assert (quiet.row().position, quiet.tip()) == (Position("6"), None)
    owned.progress.done_through(2)
    await asyncio.sleep(6)
    assert (quiet.row().position, quiet.tip()) == (
        Position("7"),
        Tip(1e6, Position("7")),
    )
    await asyncio.sleep(60)
    assert len(quiet.store.sent) == 2


async def test_a_shard_that_no_record_was_read_of_has_no_tip(world: World) -> None:
    quiet = await Quiet(world, position=None).begin()
    quiet.read(1e6)
    await asyncio.sleep(60)
    assert quiet.store.sent == []


@pytest.mark.parametrize("how", ["lost", "unanswered", "throttled"])
async def test_a_tip_that_could_not_be_stored_is_stored_later(
    world: World, how: str
) -> None:
    quiet = await Quiet(world).begin()
    quiet.read(1e6)
    quiet.store.spoil(how, "tip")
    await asyncio.sleep(13)
    assert quiet.tip() == Tip(1e6, Position("5"))
    assert quiet.lost == []


async def test_a_former_owner_stores_no_tip(world: World) -> None:
    quiet = await Quiet(world).begin()
    quiet.read(1e6)
    (owned,) = quiet.owned_shards
    owned.row = owned.row._replace(epoch=0)
    await asyncio.sleep(6)
    assert quiet.tip() is None
    assert quiet.lost == [owned]


# --- what tips prove after a restart -------------------------------------------------


async def test_an_idle_shard_whose_position_has_expired_is_known_to_be_whole(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world.kinesis.stream("orders").retention_hours = 1  # so that the test is short
    world.put("a")
    client = world.client("c1", Stream("orders", min_read_interval_seconds=10))
    await world.until(lambda: client.texts == ["a"])
    await asyncio.sleep(0.5 * HOUR)
    client.kill()
    await asyncio.sleep(0.9 * HOUR)
    world.put("b")
    world.kinesis.apply_retention()
    again = world.client("c2")
    await world.until(lambda: again.texts == ["b"])
    assert "has expired, and nothing came after it" in caplog.text
    assert "may be lost" not in caplog.text


async def test_one_shard_can_be_committed_in_one_attempt(world: World) -> None:
    desk = await CheckpointDesk(world, shards=2).begin()
    desk.done(3)
    desk.store.spoil("throttled", "sequence_number")
    with pytest.raises(StoreThrottledError):
        await desk.checkpointer.commit_one(desk.owned_shards[1])
    assert desk.row(1).position is None
    for _ in range(2):  # what is stored needs no write
        await desk.checkpointer.commit_one(desk.owned_shards[1])
        assert desk.row(1).position == Position("3")
    assert desk.row(0).position is None
    assert len(desk.store.sent) == 2
    assert desk.owner.syncs > 0


async def test_a_shard_that_another_session_owns_is_lost_at_its_commit(
    world: World,
) -> None:
    desk = await CheckpointDesk(world).begin()
    desk.done(3)
    [owned] = desk.owned_shards
    await desk.change(owned, owner="other")
    await desk.checkpointer.commit_one(owned)
    assert desk.lost == [owned]
    assert not owned.can_store
