"""Membership from one seat: fencing, election, plans, and what an outage changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import plan
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import HASH_KEYS, Interval, Start
from kinesumer.wire import writes
from tests.support.members import Fleet, fleet_of, lay_baseline, leader_row, sit
from tests.support.world import APP, ARN, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.model.streams import Range

LAST = HASH_KEYS - 1
WHOLE: Range = (Interval(ARN, 0, LAST),)


def shares(world: World) -> dict[str, int]:
    """Return how many of four even shards each member's range has."""
    starts = {ARN: [n * HASH_KEYS // 4 for n in range(4)]}
    parts = {
        client_id: plan.Assignment(0, member.range or (), frozenset())
        for client_id, member in world.members().items()
        if not member.dead
    }
    return plan.shares(parts, starts)


# --- plans ---


@in_virtual_time
async def test_the_first_client_leads_and_soon_takes_everything(
    world: World,
) -> None:
    seat = await sit(await fleet_of(world), "c0")
    await world.until(lambda: seat.assigned, seconds=1.3)
    assert seat.leads
    assert seat.elections == 1
    (mine,) = seat.assigned
    assert (mine.range, mine.index, mine.clients) == (WHOLE, 0, 1)
    assert mine.plan == (1, 1)
    assert leader_row(world) == (mine.session, "c0", 1, 1)


@in_virtual_time
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


@in_virtual_time
async def test_members_get_even_parts_in_order_of_their_ids(world: World) -> None:
    fleet = await fleet_of(world, "c1", "c3", "c2")
    await sit(fleet, "c0")
    await asyncio.sleep(1.5)
    assert shares(world) == {"c0": 1, "c1": 1, "c2": 1, "c3": 1}
    firsts = [(m.range or WHOLE)[0].first for _, m in sorted(world.members().items())]
    assert firsts == [n * HASH_KEYS // 4 for n in range(4)]
    assert [m.index for _, m in sorted(world.members().items())] == [0, 1, 2, 3]


@in_virtual_time
async def test_who_starts_with_the_first_client_is_in_the_first_plan(
    world: World,
) -> None:
    fleet = await fleet_of(world)
    await sit(fleet, "c0")
    await asyncio.sleep(0.7)
    await fleet.join("c1")
    await asyncio.sleep(1.5)
    assert shares(world) == {"c0": 2, "c1": 2}
    assert leader_row(world).plan_version == 1


@in_virtual_time
async def test_joins_are_gathered_into_one_plan(world: World) -> None:
    fleet = await fleet_of(world)
    await sit(fleet, "c0")
    await asyncio.sleep(10)
    await fleet.join("c1")
    await asyncio.sleep(1.5)
    await fleet.join("c2")
    assert shares(world) == {"c0": 4, "c1": 0, "c2": 0}
    await asyncio.sleep(2)
    assert min(shares(world).values()) == 1
    assert leader_row(world).plan_version == 2


@in_virtual_time
async def test_only_members_whose_range_changed_are_written(world: World) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    await sit(fleet, "c0")
    await asyncio.sleep(10)
    before = {name: member.plan for name, member in world.members().items()}
    await fleet.change("c2", state="leaving")
    await asyncio.sleep(2)
    after = {name: member.plan for name, member in world.members().items()}
    assert shares(world) == {"c0": 2, "c1": 2, "c2": 0}
    assert after["c2"] > before["c2"]
    sizes = [before[name] == after[name] for name in ("c0", "c1", "c2")]
    assert sizes.count(False) >= 2


@in_virtual_time
async def test_a_calm_group_costs_no_writes(world: World) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    sent = len(seat.store.sent)
    await asyncio.sleep(600)
    assert len(seat.store.sent) == sent


@in_virtual_time
async def test_a_calm_group_hardly_reads_shard_rows(world: World) -> None:
    fleet = await fleet_of(world, "c1")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    seat.store.queried.clear()
    await asyncio.sleep(600)
    read = [pk for pk in seat.store.queried if pk.startswith("shard#")]
    assert len(read) <= 2


@in_virtual_time
async def test_who_leaves_or_cannot_read_gets_nothing(world: World) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    await sit(fleet, "c0")
    await asyncio.sleep(5)
    await fleet.change("c1", state="degraded")
    await asyncio.sleep(1.1)
    assert shares(world) == {"c0": 2, "c1": 0, "c2": 2}
    await asyncio.sleep(5)
    await fleet.change("c1", state="up")
    await fleet.change("c2", state="leaving")
    await asyncio.sleep(1.1)
    assert shares(world) == {"c0": 2, "c1": 2, "c2": 0}


@in_virtual_time
async def test_a_plan_waits_until_shards_of_the_one_before_have_moved(
    world: World,
) -> None:
    fleet = await fleet_of(world, "c1", "c2", "c3")
    await sit(fleet, "c0")
    await asyncio.sleep(5)
    await fleet.change("c1", state="leaving")
    await asyncio.sleep(1.1)
    await fleet.change("c2", state="leaving")
    await asyncio.sleep(3)
    assert shares(world)["c1"] == 0
    assert shares(world)["c2"] > 0
    await asyncio.sleep(2)
    assert shares(world)["c2"] == 0


@in_virtual_time
async def test_a_death_is_planned_for_though_shards_still_move(world: World) -> None:
    fleet = await fleet_of(world, "c1", "c2", "c3")
    await sit(fleet, "c0")
    await asyncio.sleep(5)
    fleet.silence("c2")
    await asyncio.sleep(3)
    await fleet.change("c1", state="leaving")
    await asyncio.sleep(1.1)
    assert shares(world)["c1"] == 0
    await asyncio.sleep(2)
    assert shares(world) == {"c0": 2, "c1": 0, "c2": 0, "c3": 2}


@in_virtual_time
async def test_a_silent_member_is_planned_without_before_it_is_dead(
    world: World,
) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    await sit(fleet, "c0")
    await asyncio.sleep(5)
    fleet.silence("c1")
    await asyncio.sleep(5.5)
    assert not world.members()["c1"].dead
    assert shares(world) == {"c0": 2, "c1": 0, "c2": 2}
    fleet.beating["c1"] = fleet.row("c1")
    await asyncio.sleep(2.1)
    assert shares(world)["c1"] > 0


@in_virtual_time
async def test_streams_that_the_leader_cannot_reach_are_kept_by_who_asks(
    world: World,
) -> None:
    fleet = await fleet_of(world)
    other = await lay_baseline(world, 2, "payments")
    await fleet.join("c1", streams=frozenset({ARN, other}))
    await sit(fleet, "c0")
    await asyncio.sleep(2)
    assert fleet.row("c1").syncs == {other}
    assert fleet.row("c0").syncs == frozenset()
    assert {part.stream_arn for part in fleet.row("c0").range or ()} == {ARN}
    assert Interval(other, 0, LAST) in (fleet.row("c1").range or ())


@in_virtual_time
async def test_many_splits_are_shared_anew_but_one_moves_nothing(world: World) -> None:
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


@in_virtual_time
async def test_splits_of_a_stream_that_others_keep_are_shared_anew_too(
    world: World,
) -> None:
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


@in_virtual_time
async def test_a_silent_member_is_fenced_after_its_lease_and_replaced_at_once(
    world: World,
) -> None:
    fleet = await fleet_of(world, "c1")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    fleet.silence("c1")
    await asyncio.sleep(7)
    assert not fleet.row("c1").dead
    await asyncio.sleep(2.5)
    assert fleet.row("c1").dead
    assert fleet.row("c0").range == WHOLE
    assert "session of c1" in seat.leader.watcher.dead


@in_virtual_time
async def test_a_leader_goes_on_watching_though_many_lower_ids_have_joined(
    world: World,
) -> None:
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


@in_virtual_time
async def test_the_lease_that_a_member_states_is_respected(world: World) -> None:
    fleet = await fleet_of(world)
    await fleet.join("c1", lease_ms=40_000)
    await sit(fleet, "c0")
    await asyncio.sleep(10)
    fleet.silence("c1")
    await asyncio.sleep(38)
    assert not fleet.row("c1").dead
    await asyncio.sleep(4)
    assert fleet.row("c1").dead


@in_virtual_time
async def test_after_an_outage_of_the_store_nobody_healthy_is_fenced(
    world: World,
) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    seat.store.down = fleet.unavailable = True
    await asyncio.sleep(120)
    seat.store.down = False
    await asyncio.sleep(6)
    fleet.unavailable = False
    await asyncio.sleep(60)
    assert not any(member.dead for member in world.members().values())


@in_virtual_time
async def test_who_cannot_beat_itself_fences_nobody(world: World) -> None:
    fleet = await fleet_of(world, "c1")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    seat.lease.deadline = 0
    fleet.silence("c1")
    await asyncio.sleep(60)
    assert not fleet.row("c1").dead
    seat.lease.deadline = 1e9
    await asyncio.sleep(7)
    assert not fleet.row("c1").dead
    await asyncio.sleep(3)
    assert fleet.row("c1").dead


@in_virtual_time
async def test_a_fence_that_was_not_answered_is_not_repeated_at_once(
    world: World,
) -> None:
    """It would hit whoever couldn't beat during the same outage."""
    fleet = await fleet_of(world, "c1")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    fleet.silence("c1")
    seat.store.spoil("lost", "dead")
    await asyncio.sleep(12)
    assert len(seat.store.writes("dead")) == 1
    assert not fleet.row("c1").dead
    await asyncio.sleep(8)
    assert fleet.row("c1").dead


@in_virtual_time
async def test_a_member_that_beats_at_the_last_moment_lives(world: World) -> None:
    fleet = await fleet_of(world, "c1")
    seat = await sit(fleet, "c0")
    await asyncio.sleep(10)
    fleet.silence("c1")
    await asyncio.sleep(5)
    seat.store.latency = 2.0
    row = fleet.row("c1")
    await asyncio.sleep(4.5)
    beat = writes.heartbeat(APP, row, row.beat + 1, state="up", lease_ms=8000)
    await world.table.write(beat)
    await asyncio.sleep(3)
    assert not fleet.row("c1").dead


@in_virtual_time
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
