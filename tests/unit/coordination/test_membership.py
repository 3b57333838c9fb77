"""Test that rows of dead members are pruned after an hour."""

from __future__ import annotations

import asyncio

from kinesumer.core.liveness import MAX_REQUEST_DELAY_SECONDS
from kinesumer.wire import writes
from tests.support.members import fleet_of, lead, sit
from tests.support.world import APP, World


async def test_rows_of_the_long_dead_are_pruned_and_no_sooner(world: World) -> None:
    fleet, _ = await lead(world, "c1")
    fleet.silence("c1")
    await asyncio.sleep(3600)
    assert fleet.row("c1").dead
    await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS + 600)
    assert sorted(world.members()) == ["c0"]


async def test_a_death_just_seen_is_not_pruned_for_an_old_date(world: World) -> None:
    fleet = await fleet_of(world, "c1")
    await world.table.write(
        writes.leave(APP, fleet.row("c1"), "2001-01-01T00:00:00.000Z")
    )
    fleet.silence("c1")
    await sit(fleet, "c0")
    await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS - 10)
    assert fleet.row("c1").dead
    await asyncio.sleep(1200)
    assert sorted(world.members()) == ["c0"]
