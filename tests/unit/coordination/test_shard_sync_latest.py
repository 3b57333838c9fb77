"""Test that LATEST becomes one time by Kinesis's clock, taken after the listing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Shard, Start
from kinesumer.wire import rows
from tests.support.clock import ClockAhead
from tests.support.faulty import DateAhead, FaultySource
from tests.support.world import APP, World

P = "shardId-000000000000"


class SlowListing(FaultySource):
    """A source that takes two seconds to list the shards."""

    async def list_shards(self) -> Sequence[Shard]:
        """Return the shards as they are after two seconds."""
        await asyncio.sleep(2)
        return await super().list_shards()


def start_time(world: World) -> float | None:
    (row,) = world.table.rows(f"group#{APP}")
    return rows.read_stream(row).start.timestamp


async def test_the_clients_own_clock_does_not_count(world: World) -> None:
    context = replace(world.context(), clock=ClockAhead(world.clock, 3600))
    stream = world.open(world.kinesis.source("orders"), start=Start.LATEST)
    await sync_shards(context, stream)
    assert start_time(world) == pytest.approx(world.clock.wall(), abs=0.1)


async def test_records_that_arrive_during_the_listing_are_skipped(world: World) -> None:
    source = SlowListing(world.kinesis.source("orders"))
    stream = world.open(source, start=Start.LATEST)
    keeping = world.loop.create_task(sync_shards(world.context(), stream))
    await asyncio.sleep(1)
    world.put("while the shard was open")
    world.kinesis.split("orders", P)
    split_at = world.clock.wall()
    await keeping
    assert world.shard_rows()[P].ended  # the parent's record is skipped …
    assert (start_time(world) or 0.0) > split_at  # … because it came before LATEST


@pytest.mark.parametrize("ahead", [0.5, 50.0])
async def test_records_after_the_start_are_read_if_the_date_is_ahead(
    world: World, ahead: float
) -> None:
    source = DateAhead(world.kinesis.source("orders"), ahead)
    client = world.client("c1", start=Start.LATEST, source=lambda name: source)
    group = f"group#{APP}"
    await world.until(
        lambda: any(row.get("baseline") for row in world.table.rows(group))
    )
    world.put("just after")
    await world.until(lambda: client.texts == ["just after"])


async def test_a_date_that_is_minutes_ahead_is_refused(world: World) -> None:
    source = DateAhead(world.kinesis.source("orders"), 500.0)
    stream = world.open(source, start=Start.LATEST)
    with pytest.raises(ConfigurationError, match="more than 100 s ahead"):
        await sync_shards(world.context(), stream)
