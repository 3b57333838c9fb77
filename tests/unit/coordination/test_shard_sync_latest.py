"""LATEST is one moment of the service's own clock, after the listing was made."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.errors import ConfigurationError
from kinesumer.model.streams import Start
from kinesumer.wire import rows
from tests.support.world import APP, DateAhead, FaultySource, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.model.streams import Shard

P = "shardId-000000000000"


class SlowListing(FaultySource):
    """A way to a stream on which a listing takes its time."""

    async def list_shards(self) -> list[Shard]:
        """Return the shards as they are after two seconds."""
        await asyncio.sleep(2)
        return await super().list_shards()


class FastClock:
    """The clock of a machine that is an hour ahead."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> float:
        return self._clock.wall() + 3600


def start_time(world: World) -> float | None:
    (row,) = world.table.rows(f"group#{APP}")
    return rows.read_stream(row).start.timestamp


@in_virtual_time
async def test_the_clients_own_clock_does_not_count(world: World) -> None:
    context = replace(world.context(), clock=FastClock(world))
    stream = world.open(world.kinesis.source("orders"), start=Start.LATEST)
    await sync_shards(context, stream)
    assert start_time(world) == pytest.approx(world.clock.wall(), abs=0.1)


@in_virtual_time
async def test_what_came_while_shards_were_listed_is_before_the_start(
    world: World,
) -> None:
    source = SlowListing(world.kinesis.source("orders"))
    stream = world.open(source, start=Start.LATEST)
    keeping = world.loop.create_task(sync_shards(world.context(), stream))
    await asyncio.sleep(1)
    world.put("while the shard was open")
    world.kinesis.split("orders", P)
    split_at = world.clock.wall()
    await keeping
    assert world.shard_rows()[P].ended  # nobody will read that record …
    assert (start_time(world) or 0.0) > split_at  # … nor has anybody asked for it


@pytest.mark.parametrize("ahead", [0.5, 5.0, 50.0])
@in_virtual_time
async def test_what_comes_after_the_start_is_read_though_the_date_is_ahead(
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


@in_virtual_time
async def test_a_date_that_is_minutes_ahead_is_refused(world: World) -> None:
    source = DateAhead(world.kinesis.source("orders"), 500.0)
    stream = world.open(source, start=Start.LATEST)
    with pytest.raises(ConfigurationError, match="more than 100 s ahead"):
        await sync_shards(world.context(), stream)
