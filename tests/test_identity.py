"""Whether the state store is still the group's own, and nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import GoFleetAliveError, StateStoreReplacedError
from kinesumer.identity import check_group, refuse_go_fleet
from kinesumer.ports import Key, Test, Write
from kinesumer.wire import rows
from tests.engine import APP, FaultyStore, World, in_virtual_time


@in_virtual_time
async def test_the_first_client_gives_the_group_an_identity(world: World) -> None:
    first = await check_group(world.context("c1"), None)
    assert await check_group(world.context("c2"), None) == first
    assert await check_group(world.context("c1"), first) == first


@in_virtual_time
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


@in_virtual_time
async def test_a_table_emptied_or_replaced_is_told(world: World) -> None:
    context = world.context()
    known = await check_group(context, None)
    world.table.create_table("table-2")
    with pytest.raises(StateStoreReplacedError, match="no such group"):
        await check_group(context, known)
    await check_group(context, None)
    with pytest.raises(
        StateStoreReplacedError, match=f"group {known.group_id}; now table-2, id-"
    ):
        await check_group(context, known)


async def go_client(world: World, name: str, last_update: str) -> None:
    key = Key(f"client#{APP}", name)
    await world.table.write(
        Write(key, Test("pk", "absent"), {"last_update": last_update})
    )


@in_virtual_time
async def test_live_go_clients_are_named(world: World) -> None:
    for name, age in (("go-1", 3), ("go-2", 59), ("go-3", 61), ("ahead", -20)):
        await go_client(world, name, rows.timestamp_text(world.clock.wall() - age))
    await go_client(world, "unreadable", "yesterday")
    with pytest.raises(GoFleetAliveError) as caught:
        await refuse_go_fleet(world.context())
    assert "ahead, go-1, go-2; stop them" in str(caught.value)


@in_virtual_time
async def test_dead_go_clients_are_nothing_to_refuse(world: World) -> None:
    await go_client(world, "go-1", rows.timestamp_text(world.clock.wall() - 3600))
    await refuse_go_fleet(world.context())
