"""Test when a leader plans anew because of the loads that members report."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from kinesumer.model.reports import Load
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import read_snapshot
from tests.support.members import Fleet, Seat, fleet_of, leader_row, sit
from tests.support.shares import stored_loads
from tests.support.world import APP, ARN, World

SHARDS = 12


def text(first: int, *seconds: float) -> str:
    """Return what a member reports whose shards from ``first`` on have these loads."""
    loads = {
        (ShardKey(ARN, f"shardId-{number}"), number * HASH_KEYS // SHARDS): Load(
            handler_seconds_per_second=load
        )
        for number, load in enumerate(seconds, first)
    }
    return stored_loads(loads, frozenset({ARN}))


def shares(world: World) -> dict[str, int]:
    """Return how many shards each member's range has."""
    starts = [number * HASH_KEYS // SHARDS for number in range(SHARDS)]
    return {
        client_id: sum(
            first <= start <= last
            for _, first, last in member.range or ()
            for start in starts
        )
        for client_id, member in world.members().items()
        if not member.dead
    }


async def balanced(world: World, **config: object) -> tuple[Fleet, Seat]:
    """Return two members with six shards each, which report equal loads."""
    fleet = await fleet_of(world, "c1", shards=SHARDS)
    seat = await sit(fleet, "c0", assignor="load", **config)  # type: ignore[arg-type]
    await asyncio.sleep(3)
    assert shares(world) == {"c0": 6, "c1": 6}
    await fleet.change("c0", load=text(0, *[0.1] * 6))
    await fleet.change("c1", load=text(6, *[0.1] * 6))
    await asyncio.sleep(60)
    assert shares(world) == {"c0": 6, "c1": 6}
    return fleet, seat


async def test_a_busier_client_gets_fewer_shards(world: World) -> None:
    fleet, _ = await balanced(world)
    version = leader_row(world).plan_version
    await fleet.change("c0", load=text(0, *[0.2] * 6))
    await world.until(lambda: shares(world)["c0"] < 6, seconds=18)
    assert shares(world) == {"c0": 5, "c1": 7}
    await asyncio.sleep(120)
    # The new owner hasn't reported the shard yet, so its last load counts.
    assert leader_row(world).plan_version <= version + 2


async def test_reports_explain_a_plan_as_its_leader_does(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kinesumer")
    fleet, _ = await balanced(world)
    assert "clients: clients have joined, left or changed" in caplog.text
    await fleet.change("c0", load=text(0, *[0.2] * 6))
    stored = await read_snapshot(world.table, APP)
    plan = FleetView(replace(stored, read_at=world.clock.wall())).plan
    assert plan.reasons[0].startswith("shards move to lower the most work")
    await world.until(lambda: shares(world)["c0"] < 6, seconds=18)
    assert f"of 2 clients: {plan.reasons[0]}" in caplog.text


async def test_the_leaders_row_tells_by_which_assignor_and_when_it_planned(
    world: World,
) -> None:
    await balanced(world, rebalance_interval_seconds=30)
    row = leader_row(world)
    assert (row.assignor, row.rebalance_ms) == ("load", 30_000)
    assert 0 < world.clock.wall() - row.planned_at < 70


async def test_other_assignors_ignore_loads(world: World) -> None:
    fleet = await fleet_of(world, "c1", shards=SHARDS)
    await sit(fleet, "c0")
    await asyncio.sleep(3)
    await fleet.change("c0", load=text(0, *[5.0] * 6))
    await fleet.change("c1", load=text(6, *[0.1] * 6))
    await asyncio.sleep(120)
    assert shares(world) == {"c0": 6, "c1": 6}


async def test_a_new_leader_knows_the_loads_at_once(world: World) -> None:
    fleet, seat = await balanced(world)
    await fleet.change("c0", load=text(0, *[0.3] * 6))
    await asyncio.sleep(30)
    before = shares(world)
    assert before["c0"] < 6
    seat.leave()
    await sit(fleet, "c2", assignor="load")
    await world.until(lambda: leader_row(world).leader_epoch == 2, seconds=30)
    await asyncio.sleep(20)
    # The successor takes the range of the former leader.
    assert shares(world)["c2"] == before["c0"]
    assert shares(world)["c1"] == before["c1"]


async def test_a_leader_tells_how_many_clients_the_loads_need(world: World) -> None:
    fleet = await fleet_of(world, "c1", shards=SHARDS)
    seat = await sit(fleet, "c0", target_utilization=0.5)
    await asyncio.sleep(3)
    assert seat.leader.clients_wanted() is None
    await fleet.change("c0", load=text(0, *[0.2] * 6))
    await asyncio.sleep(3)
    # The shards of the other member count as average shards: 12 * 0.201 / 0.5.
    assert seat.leader.clients_wanted() == 5
    await fleet.change("c1", load=text(6, *[0.4] * 6))
    await asyncio.sleep(3)
    assert seat.leader.clients_wanted() == 8
    assert seat.leader.leader is not None
    seat.leader.leader = seat.leader.leader._replace(session="a successor")
    assert seat.leader.clients_wanted() is None
