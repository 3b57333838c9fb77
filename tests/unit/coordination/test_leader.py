"""Test which plans a leader makes, and when loads make it plan anew."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.model.reports import Load
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start
from kinesumer.ops.group.observation import FleetView
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.wire import writes
from tests.support.members import (
    WHOLE,
    Fleet,
    Seat,
    fleet_of,
    lay_baseline,
    lead,
    leader_row,
    shares,
    sit,
)
from tests.support.shares import stored_loads
from tests.support.world import APP, ARN, World

# --- plans ---


async def test_the_first_client_leads_and_soon_gets_all_shards(world: World) -> None:
    seat = await sit(await fleet_of(world), "c0")
    await world.until(lambda: seat.assigned, seconds=1.3)
    assert seat.leads
    assert seat.elections == 1
    (mine,) = seat.assigned
    assert (mine.range, mine.index, mine.clients) == (WHOLE, 0, 1)
    assert mine.plan == (1, 1)
    assert leader_row(world)[:5] == (mine.session, "c0", 1, 1, "range")


async def test_no_plan_is_made_before_a_baseline_stands(world: World) -> None:
    seat = await sit(Fleet(world), "c0")
    stream = world.open(world.kinesis.source("orders"))
    begun = StreamRow(ARN, stream.info.created_at, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, begun))
    await asyncio.sleep(10)
    assert seat.leads
    assert seat.assigned == []
    await sync_shards(world.context(), stream)
    seat.leader.shards_changed()
    await world.until(lambda: seat.assigned, seconds=0.1)


async def test_clients_that_start_together_share_the_first_plan(world: World) -> None:
    fleet = await fleet_of(world)
    await sit(fleet, "c0")
    await asyncio.sleep(0.7)
    await fleet.join("c1")
    await asyncio.sleep(1.5)
    assert shares(world) == {"c0": 2, "c1": 2}
    assert leader_row(world).plan_version == 1


async def test_a_stable_group_writes_nothing_and_reads_little(world: World) -> None:
    _, seat = await lead(world, "c1", "c2", seconds=10)
    sent = len(seat.store.sent)
    seat.store.queried.clear()
    await asyncio.sleep(600)
    assert len(seat.store.sent) == sent
    assert sum(pk.startswith("shard#") for pk in seat.store.queried) <= 2


async def test_a_plan_waits_for_the_moves_of_the_one_before(world: World) -> None:
    fleet, _ = await lead(world, "c1", "c2", "c3")
    await fleet.change("c1", state="leaving")
    await asyncio.sleep(1.1)
    await fleet.change("c2", state="leaving")
    await asyncio.sleep(3)
    assert shares(world)["c1"] == 0
    assert shares(world)["c2"] > 0
    await asyncio.sleep(2)
    assert shares(world)["c2"] == 0


async def test_a_missing_member_gets_no_range_before_it_is_dead(world: World) -> None:
    fleet, _ = await lead(world, "c1", "c2")
    fleet.silence("c1")
    await asyncio.sleep(5.5)
    assert not world.members()["c1"].dead
    assert shares(world) == {"c0": 2, "c1": 0, "c2": 2}
    fleet.beating["c1"] = fleet.row("c1")
    await asyncio.sleep(2.1)
    assert shares(world)["c1"] > 0


async def test_many_splits_move_shards_but_one_does_not(world: World) -> None:
    fleet = await fleet_of(world, "c1", shards=2)
    seat = await sit(fleet, "c0")
    await asyncio.sleep(5)
    opened = world.open(world.kinesis.source("orders"))
    for splits, moves in ((1, False), (4, True)):
        version = leader_row(world).plan_version
        for _ in range(splits):
            lowest = world.kinesis.stream("orders").open[0].shard.shard_id
            world.kinesis.split("orders", lowest)
        await sync_shards(seat.world.context(), opened)
        seat.leader.shards_changed()
        await asyncio.sleep(10)
        assert (leader_row(world).plan_version > version) is moves


async def test_splits_of_a_stream_synced_by_others_move_shards(world: World) -> None:
    fleet = await fleet_of(world)
    other = await lay_baseline(world, 1, "payments")
    await fleet.join("c1", streams=frozenset({other}))
    await fleet.join("c2", streams=frozenset({other}))
    seat = await sit(fleet, "c0")
    await asyncio.sleep(5)
    opened = world.open(world.kinesis.source("payments"))
    for _ in range(3):
        lowest = world.kinesis.stream("payments").open[0].shard.shard_id
        world.kinesis.split("payments", lowest)
        await sync_shards(seat.world.context(), opened)
    await asyncio.sleep(45)
    assert fleet.row("c1").range
    assert fleet.row("c2").range


# --- fencing ---


async def test_a_missing_member_is_fenced_after_its_lease(world: World) -> None:
    fleet, seat = await lead(world, "c1", seconds=10)
    fleet.silence("c1")
    await asyncio.sleep(7)
    assert not fleet.row("c1").dead
    await asyncio.sleep(2.5)
    assert fleet.row("c1").dead
    assert fleet.row("c0").range == WHOLE
    assert "session of c1" in seat.leader.watcher.dead


async def test_a_leader_with_a_high_index_still_fences(world: World) -> None:
    fleet = await fleet_of(world)
    seat = await sit(fleet, "c9")
    await asyncio.sleep(5)
    for client_id in ("c0", "c1", "c2", "c3"):
        await fleet.join(client_id)
    await asyncio.sleep(10)
    assert seat.leads
    assert fleet.row("c9").index == 4
    fleet.silence("c0")
    await asyncio.sleep(11)
    assert fleet.row("c0").dead


async def test_a_leader_with_a_lapsed_lease_fences_no_member(world: World) -> None:
    fleet, seat = await lead(world, "c1", seconds=10)
    seat.lease.deadline = 0
    fleet.silence("c1")
    await asyncio.sleep(60)
    assert not fleet.row("c1").dead
    seat.lease.deadline = 1e9
    await asyncio.sleep(7)
    assert not fleet.row("c1").dead
    await asyncio.sleep(3)
    assert fleet.row("c1").dead


async def test_an_unanswered_fence_is_not_repeated_at_once(world: World) -> None:
    """A fence may fail in an outage, in which clients can't send heartbeats either."""
    fleet, seat = await lead(world, "c1", seconds=10)
    fleet.silence("c1")
    seat.store.spoil("lost", "dead")
    await asyncio.sleep(12)
    assert len(seat.store.writes("dead")) == 1
    assert not fleet.row("c1").dead
    await asyncio.sleep(8)
    assert fleet.row("c1").dead


async def test_members_that_do_not_lead_fence_only_the_leader(world: World) -> None:
    fleet = await fleet_of(world)
    leader = await sit(fleet, "c0")
    await asyncio.sleep(1)
    await sit(fleet, "c1")
    await fleet.join("c2")
    await asyncio.sleep(10)
    leader.task.cancel()
    fleet.silence("c2")
    await asyncio.sleep(60)
    assert not fleet.row("c2").dead
    fleet.silence("c0")
    await asyncio.sleep(12)
    assert fleet.row("c0").dead


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


async def balanced(world: World, **config: object) -> tuple[Fleet, Seat]:
    """Return two members with six shards each, which report equal loads."""
    fleet = await fleet_of(world, "c1", shards=SHARDS)
    seat = await sit(fleet, "c0", assignor="load", **config)
    await asyncio.sleep(3)
    assert shares(world, SHARDS) == {"c0": 6, "c1": 6}
    await fleet.change("c0", load=text(0, *[0.1] * 6))
    await fleet.change("c1", load=text(6, *[0.1] * 6))
    await asyncio.sleep(60)
    assert shares(world, SHARDS) == {"c0": 6, "c1": 6}
    return fleet, seat


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
    await world.until(lambda: shares(world, SHARDS)["c0"] < 6, seconds=18)
    assert f"of 2 clients: {plan.reasons[0]}" in caplog.text


async def test_the_leaders_row_tells_by_which_assignor_and_when_it_planned(
    world: World,
) -> None:
    await balanced(world, rebalance_interval_seconds=30)
    row = leader_row(world)
    assert (row.assignor, row.rebalance_ms) == ("load", 30_000)
    assert 0 < world.clock.wall() - row.planned_at < 70


async def test_a_new_leader_knows_the_loads_at_once(world: World) -> None:
    fleet, seat = await balanced(world)
    await fleet.change("c0", load=text(0, *[0.3] * 6))
    await asyncio.sleep(30)
    before = shares(world, SHARDS)
    assert before["c0"] < 6
    seat.leave()
    await sit(fleet, "c2", assignor="load")
    await world.until(lambda: leader_row(world).leader_epoch == 2, seconds=30)
    await asyncio.sleep(20)
    # The successor takes the range of the former leader.
    assert shares(world, SHARDS)["c2"] == before["c0"]
    assert shares(world, SHARDS)["c1"] == before["c1"]


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
