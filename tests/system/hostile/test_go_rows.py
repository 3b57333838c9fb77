"""Rows that Kinesumer for Go left, sound and broken, and rows that somebody deleted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kinesumer.errors import GroupBusyError
from kinesumer.model.rows import UnsupportedValue
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.support.clients import settled
from tests.support.world import APP, World, in_virtual_time
from tests.system.hostile.hands import NULL, put

if TYPE_CHECKING:
    from kinesumer.model.rows import Value

P = "shardId-000000000000"


def checkpoint(world: World, number: Value, stream: str = "orders") -> None:
    """Leave a checkpoint as Kinesumer for Go does."""
    row = {"pk": f"check_point#{APP}#{stream}", "sk": P, "sequence_number": number}
    put(world, {**row, "last_update": "2026-11-21T10:00:00.123456789+09:00"})


@in_virtual_time
async def test_a_shard_goes_on_where_go_was_and_its_other_rows_matter_not(
    world: World,
) -> None:
    world.put("a", "b")
    first = world.kinesis.stream("orders").open[0].log[0].sequence_number
    checkpoint(world, first)
    put(world, {"pk": f"shard_cache#{APP}", "sk": "orders", "shard_ids": NULL})
    put(world, {"pk": f"client#{APP}", "sk": "old", "last_update": "yesterday"})
    put(world, {"pk": f"client#{APP}", "sk": "odd", "last_update": NULL})
    client = world.client("c1")
    await world.until(lambda: client.texts == ["b"])


@pytest.mark.parametrize("number", ["", "LATEST", "٣", "1" * 200, 49, NULL])
@in_virtual_time
async def test_a_checkpoint_of_go_that_cannot_be_read_is_not_passed_over(
    world: World, caplog: pytest.LogCaptureFixture, number: Value
) -> None:
    world.kinesis.create_stream("payments")
    checkpoint(world, number)
    client = world.client("c1", "orders", "payments")
    world.put("a")
    world.put("b", stream="payments")
    await world.until(lambda: "b" in client.texts)
    await asyncio.sleep(60)
    if number == "":  # Go had stored none yet
        assert "a" in client.texts
        return
    assert client.texts == ["b"]
    assert f"pk='check_point#{APP}#orders' sk='{P}'" in caplog.text
    checkpoint(world, "0")
    await world.until(lambda: client.texts == ["b", "a"], seconds=90)


@in_virtual_time
async def test_a_living_go_client_with_an_odd_row_beside_it_is_still_refused(
    world: World,
) -> None:
    moment = rows.timestamp_text(world.clock.wall())
    put(world, {"pk": f"client#{APP}", "sk": "live", "last_update": moment})
    put(
        world,
        {"pk": f"client#{APP}", "sk": "odd", "last_update": UnsupportedValue("{}")},
    )
    client = world.client("c1")
    await asyncio.wait([client.task], timeout=10)
    assert isinstance(client.task.exception(), GroupBusyError)


@in_virtual_time
async def test_a_deleted_leader_row_is_made_anew_and_its_plans_are_heard(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 6)
    clients = {name: world.client(name) for name in ("c1", "c2", "c3")}
    await settled(world, *clients.values(), shards=6)
    for name in ("c1", "c2"):  # three leaders by now
        clients.pop(name).kill()
        await settled(world, *clients.values(), shards=6)
    key = rows.leader_key(APP)
    await world.table.write(Write(key, Compare("pk", "exists"), delete=True))
    new = world.client("c4")
    await settled(world, new, clients["c3"], shards=6)


@in_virtual_time
async def test_a_deleted_member_row_ends_a_session_and_no_more(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    clients = [world.client(name) for name in ("c1", "c2")]
    await settled(world, *clients, shards=4)
    for name in ("c1", "c2"):
        key = rows.member_key(APP, name)
        await world.table.write(Write(key, Compare("pk", "exists"), delete=True))
        await settled(world, *clients, shards=4)
        await asyncio.sleep(30)
        await settled(world, *clients, shards=4)
