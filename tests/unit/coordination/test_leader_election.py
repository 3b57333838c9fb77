"""Test the election of a leader: the order of standbys, and lost answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.coordination.leader import LEADER_POLL_SECONDS
from kinesumer.model.rows import Row
from kinesumer.wire import writes
from tests.support.members import WHOLE, Fleet, Seat, fleet_of, leader_row, shares, sit
from tests.support.world import APP, World


async def three(world: World) -> list[Seat]:
    fleet = await fleet_of(world)
    seats = [await sit(fleet, f"c{n}") for n in range(3)]
    await asyncio.sleep(10)
    assert [seat.leads for seat in seats] == [True, False, False]
    return seats


def hide(monkeypatch: pytest.MonkeyPatch, seat: Seat, client_id: str) -> None:
    """Let a session read the members without one of them, as a stale read may."""
    query = seat.store.query

    async def stale(pk: str, **how: Any) -> list[Row]:
        return [row for row in await query(pk, **how) if row["sk"] != client_id]

    monkeypatch.setattr(seat.store, "query", stale)


async def test_standbys_lead_in_order_of_their_index(world: World) -> None:
    first, second, third = await three(world)
    before = leader_row(world)
    first.leave()
    await asyncio.sleep(8 + 2 + 4)
    assert (second.leads, third.leads) == (True, False)
    assert leader_row(world).leader_epoch == 2
    assert leader_row(world).plan_version > before.plan_version
    assert shares(world) == {"c1": 2, "c2": 2}
    second.leave()
    await asyncio.sleep(8 + 2 + 2)
    assert third.leads
    assert leader_row(world).leader_epoch == 3
    assert world.members()["c2"].range == WHOLE


async def test_a_standby_lets_those_of_lower_index_lead_first(world: World) -> None:
    fleet = await fleet_of(world)
    first = await sit(fleet, "c0")
    await asyncio.sleep(5)
    third = await sit(fleet, "c2")
    await asyncio.sleep(0.1)
    second = await sit(fleet, "c1")
    await asyncio.sleep(10)
    first.leave()
    await asyncio.sleep(12)
    assert (second.leads, third.leads) == (True, False)


async def test_a_lower_id_that_joins_does_not_take_the_lead(world: World) -> None:
    fleet = await fleet_of(world)
    leader = await sit(fleet, "c5")
    await asyncio.sleep(5)
    newcomer = await sit(fleet, "c0")
    await asyncio.sleep(60)
    assert (leader.leads, newcomer.leads) == (True, False)


async def test_clients_beyond_the_standbys_read_only_the_leader(world: World) -> None:
    fleet = await fleet_of(world, "c1", "c2")
    leader = await sit(fleet, "c0")
    last = await sit(fleet, "c3")
    await asyncio.sleep(30)
    table, before = world.table.usage, dict(world.table.usage.requests)
    leader.task.cancel()
    await asyncio.sleep(60)
    gets = table.requests["get"] - before["get"]
    queries = table.requests["query"] - before["query"]
    assert 5 <= gets <= 60 / LEADER_POLL_SECONDS + 1
    assert queries == 0
    fleet.silence("c0", "c1", "c2")
    await asyncio.sleep(45)
    assert last.leads


async def test_the_successors_of_a_large_fleet_that_died_lead_and_fence_soon(
    world: World,
) -> None:
    fleet = await fleet_of(world, *(f"c{n:02}" for n in range(60)))
    old = await sit(fleet, "b")
    await asyncio.sleep(5)
    old.leave()
    fleet.silence(*(f"c{n:02}" for n in range(60)))
    last = await sit(fleet, "d")
    await asyncio.sleep(LEADER_POLL_SECONDS + 0.1)
    assert last.leads
    await asyncio.sleep(2)
    assert shares(world) == {"d": 4}


async def test_a_leader_missing_in_a_stale_read_goes_on_leading(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await fleet_of(world, "c1")
    take = writes.lead(APP, await fleet.join("c0"), None)
    assert (await world.table.write(take)).applied
    seat = Seat(fleet, fleet.row("c1"))
    hide(monkeypatch, seat, "c0")
    await asyncio.sleep(60)
    assert not seat.leads
    assert leader_row(world).client_id == "c0"


async def test_a_replaced_leader_stops_planning(world: World) -> None:
    fleet = await fleet_of(world)
    old = await sit(fleet, "c0")
    await asyncio.sleep(5)
    other = await fleet.join("c1")
    take = writes.lead(APP, other, leader_row(world))
    assert (await world.table.write(take)).applied
    before = fleet.row("c0").plan
    await asyncio.sleep(10)
    assert not old.leads
    assert fleet.row("c0").plan == before


@pytest.mark.parametrize("how", ["lost", "unanswered", "throttled"])
@pytest.mark.parametrize("attribute", ["leader_epoch", "plan_version", "range"])
async def test_lost_answers_of_election_and_plan_are_settled(
    world: World, how: str, attribute: str
) -> None:
    fleet = await fleet_of(world, "c1")
    member = await fleet.join("c0")
    seat = Seat(fleet, member)
    seat.store.spoil(how, attribute)
    await asyncio.sleep(5)
    assert seat.leads
    assert shares(world) == {"c0": 2, "c1": 2}


async def test_other_clients_do_not_query_before_the_first_plan(world: World) -> None:
    fleet = Fleet(world)
    for number in range(4):
        await sit(fleet, f"c{number}")
    last = await sit(fleet, "c4")
    await asyncio.sleep(5)
    last.store.queried.clear()
    await asyncio.sleep(60)
    assert last.store.queried == []


async def test_a_client_missing_in_the_list_does_not_lead(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await fleet_of(world)
    seat = Seat(fleet, await fleet.join("c0"))
    with monkeypatch.context() as patch:
        hide(patch, seat, "c0")
        await asyncio.sleep(10)
        assert not seat.leads
    await asyncio.sleep(5)
    assert seat.leads
