"""Test the stored tips of quiet shards, which prove that no record was lost."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.consuming.checkpointer import PARALLEL_COMMITS
from kinesumer.model.positions import Position, Tip
from kinesumer.model.streams import Stream
from tests.support.checkpoints import CheckpointDesk
from tests.support.world import World, batch_of, shard_row

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
