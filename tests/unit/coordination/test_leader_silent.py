"""A leader that can't look for a while: what it knew of the silent still counts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.members import fleet_of, leader_row, sit
from tests.support.world import in_virtual_time

if TYPE_CHECKING:
    from tests.support.world import World


@in_virtual_time
async def test_a_silent_member_is_given_nothing_back_when_windows_start_again(
    world: World,
) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(5)
    fleet.silence("c1")
    await asyncio.sleep(5.5)
    assert fleet.row("c1").range == ()
    version = leader_row(world).plan_version
    for _ in range(4):
        seat.store.down = True
        await asyncio.sleep(4)
        seat.store.down = False
        await asyncio.sleep(3)
    assert not fleet.row("c1").dead
    assert leader_row(world).plan_version == version
    await asyncio.sleep(8)
    assert fleet.row("c1").dead
