"""Test heartbeat intervals of large fleets, before the first plan and after it."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import SessionRenewed
from kinesumer.core.liveness import CLIENTS_PER_SECOND, Lease
from tests.support.members import Body, Fleet, registered
from tests.support.world import World

LOOK_SECONDS = 0.5


async def waiting_among(world: World, others: int) -> Body:
    """Return a session that has no plan yet, and watches ``others`` other members."""
    fleet = Fleet(world)
    for number in range(others):
        await fleet.join(f"d{number:04}", lease_ms=3_600_000)
    fleet.task.cancel()
    body = Body(world)
    await world.until(lambda: body.events_of(SessionRenewed))
    leader = Leader(
        world.context("c1"),
        Lease(body.row.session, 1e9),
        body.row,
        frozenset(),
        lambda event: None,
    )
    body.heartbeater.watch_members(leader)
    await asyncio.sleep(LOOK_SECONDS)
    return body


async def test_a_fleet_that_waits_for_its_first_plan_keeps_within_its_beats(
    world: World,
) -> None:
    others = 149
    body = await waiting_among(world, others)
    first, began = body.row.beat, world.clock.now()
    await asyncio.sleep(30)
    a_second = (body.row.beat - first) / (world.clock.now() - began)
    assert a_second * (others + 1) <= 1.2 * CLIENTS_PER_SECOND


async def test_clients_that_wait_do_not_beat_in_step(world: World) -> None:
    body = await waiting_among(world, 99)
    await asyncio.sleep(20)
    gaps = [after - before for (_, before), (_, after) in pairwise(body.beats())]
    assert max(gaps) > 1.3 * min(gaps)


@pytest.mark.parametrize("clients", [500, 5000])
async def test_heartbeats_keep_to_the_lease_in_the_row(
    world: World, clients: int
) -> None:
    body = await registered(world)
    await body.change(clients=clients)
    stated = body.row.lease_ms
    for _ in range(5):
        beat, since = body.row.beat, world.clock.now()
        await world.until(lambda beat=beat: body.row.beat > beat)  # type: ignore[misc]
        assert world.clock.now() - since < stated / 3000
        stated = body.row.lease_ms


async def test_a_longer_lease_is_stored_before_it_is_trusted(world: World) -> None:
    body = await registered(world)
    await body.change(clients=1000)
    await world.until(lambda: body.row.lease_ms == 16_000)
    await world.until(lambda: body.events_of(SessionRenewed)[-1].row.lease_ms == 16_000)
    now = world.clock.now()
    assert body.lease.deadline == pytest.approx(now + 6, abs=0.1)
    await asyncio.sleep(30)
    (*_, (_, before), (_, last)) = body.beats()
    assert last - before == pytest.approx(4, abs=0.01)
    assert body.lease.deadline == pytest.approx(last + 12, abs=0.01)
