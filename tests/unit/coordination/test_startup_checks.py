"""Test that a client checks the state store's identity and other users of its app."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.coordination.startup_checks import (
    check_group,
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.errors import GroupBusyError, StateStoreRecreatedError
from kinesumer.model.rows import QUERY, QUERY_ID, Key
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows, writes
from tests.support.faulty import FaultyStore
from tests.support.members import Fleet
from tests.support.world import APP, World


async def test_the_first_client_gives_the_group_an_identity(world: World) -> None:
    first = await check_group(world.context("c1"), None)
    assert await check_group(world.context("c2"), None) == first
    assert await check_group(world.context("c1"), first) == first


async def test_clients_that_start_at_once_agree_on_one(world: World) -> None:
    stores = [FaultyStore(world.table) for _ in range(5)]
    stores[0].spoil("unanswered", "group_id")
    found = await asyncio.gather(
        *(
            check_group(world.context(f"c{n}", store=store), None)
            for n, store in enumerate(stores)
        )
    )
    assert len({*found}) == 1


async def test_an_emptied_or_replaced_table_is_an_error(world: World) -> None:
    context = world.context()
    known = await check_group(context, None)
    world.table.create_table("table-2")
    with pytest.raises(StateStoreRecreatedError, match="no such group"):
        await check_group(context, known)
    await check_group(context, None)
    with pytest.raises(
        StateStoreRecreatedError, match=f"group {known.group_id}; now table-2, id-"
    ):
        await check_group(context, known)


async def go_client(world: World, name: str, last_update: str) -> None:
    key = Key(f"client#{APP}", name)
    await world.table.write(
        Write(key, Compare("pk", "absent"), {"last_update": last_update})
    )


async def test_live_go_clients_are_named_and_dead_ones_are_no_obstacle(
    world: World,
) -> None:
    now = world.clock.wall()
    await go_client(world, "go-3", rows.timestamp_text(now - 61))
    await require_no_go_clients(world.context())
    for name, age in (("go-1", 3), ("go-2", 59), ("ahead", -20)):
        await go_client(world, name, rows.timestamp_text(now - age))
    await go_client(world, "unreadable", "yesterday")
    with pytest.raises(GroupBusyError) as caught:
        await require_no_go_clients(world.context())
    assert "ahead, go-1, go-2; stop them" in str(caught.value)


async def query_in(world: World) -> Fleet:
    """Register a Spark query in the group; it sends heartbeats."""
    fleet = Fleet(world)
    await fleet.join(QUERY_ID, session="on host-7", kind=QUERY)
    return fleet


async def test_a_live_query_is_named(world: World) -> None:
    await query_in(world)
    with pytest.raises(
        GroupBusyError, match="'app': member spark-query, session on host-7; stop the"
    ):
        await require_no_spark_query(world.context())


async def test_a_query_that_left_costs_no_wait(world: World) -> None:
    fleet = await query_in(world)
    query = fleet.row(QUERY_ID)
    await world.table.write(writes.leave(APP, query, "now"))
    before = world.clock.now()
    await require_no_spark_query(world.context())
    assert world.clock.now() == before


async def test_a_silent_query_is_fenced_after_its_lease(world: World) -> None:
    fleet = await query_in(world)
    fleet.silence(QUERY_ID)
    before = world.clock.now()
    await require_no_spark_query(world.context())
    assert 8.0 <= world.clock.now() - before < 9.0
    assert fleet.row(QUERY_ID).dead


async def test_a_fence_that_is_not_taken_is_tried_again(world: World) -> None:
    fleet, store = await query_in(world), FaultyStore(world.table)
    fleet.silence(QUERY_ID)
    store.spoil("lost", "dead")
    await require_no_spark_query(world.context(store=store))
    assert fleet.row(QUERY_ID).dead
