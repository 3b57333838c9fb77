"""Test valid and broken rows of Kinesumer for Go, and deleted rows."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.errors import GroupBusyError
from kinesumer.model.rows import Value
from kinesumer.wire import rows
from tests.support.clients import settled, sharing
from tests.support.row_edits import NULL, delete, member_key, put
from tests.support.world import APP, World, in_virtual_time

P = "shardId-000000000000"


def checkpoint(world: World, number: Value, stream: str = "orders") -> None:
    """Write a checkpoint as Kinesumer for Go does."""
    row = {"pk": f"check_point#{APP}#{stream}", "sk": P, "sequence_number": number}
    put(world, {**row, "last_update": "2026-11-21T10:00:00.123456789+09:00"})


@in_virtual_time
async def test_a_shard_continues_after_gos_checkpoint(world: World) -> None:
    world.put("a", "b")
    first = world.kinesis.stream("orders").open[0].log[0].sequence_number
    checkpoint(world, first)
    put(world, {"pk": f"shard_cache#{APP}", "sk": "orders", "shard_ids": NULL})
    put(world, {"pk": f"client#{APP}", "sk": "old", "last_update": "yesterday"})
    put(world, {"pk": f"client#{APP}", "sk": "odd", "last_update": NULL})
    client = world.client("c1")
    await world.until(lambda: client.texts == ["b"])


@pytest.mark.parametrize("number", ["", "LATEST", NULL])
@in_virtual_time
async def test_an_invalid_checkpoint_of_go_stops_its_stream_until_corrected(
    world: World, caplog: pytest.LogCaptureFixture, number: Value
) -> None:
    world.kinesis.create_stream("payments")
    checkpoint(world, number)
    client = world.client("c1", "orders", "payments")
    world.put("a")
    world.put("b", stream="payments")
    await world.until(lambda: "b" in client.texts)
    await asyncio.sleep(60)
    if number == "":  # Go had stored no position yet
        assert "a" in client.texts
        return
    assert client.texts == ["b"]
    assert f"pk='check_point#{APP}#orders' sk='{P}'" in caplog.text
    checkpoint(world, world.kinesis.stream("orders").open[0].first_number)
    await world.until(lambda: client.texts == ["b", "a"], seconds=90)


@in_virtual_time
async def test_a_live_go_client_is_detected_beside_an_invalid_row(world: World) -> None:
    now = rows.timestamp_text(world.clock.wall())
    put(world, {"pk": f"client#{APP}", "sk": "live", "last_update": now})
    put(world, {"pk": f"client#{APP}", "sk": "odd", "last_update": NULL})
    client = world.client("c1")
    await asyncio.wait([client.task], timeout=10)
    assert isinstance(client.task.exception(), GroupBusyError)


@in_virtual_time
async def test_a_deleted_leader_row_is_created_again_and_its_plans_apply(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 6)
    clients = {name: world.client(name) for name in ("c1", "c2", "c3")}
    await settled(world, *clients.values(), shards=6)
    for name in ("c1", "c2"):  # c1, c2 and c3 lead in turn
        clients.pop(name).kill()
        await settled(world, *clients.values(), shards=6)
    await delete(world, rows.leader_key(APP))
    new = world.client("c4")
    await settled(world, new, clients["c3"], shards=6)


@in_virtual_time
async def test_a_deleted_member_row_ends_only_that_session(world: World) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    for name in ("c1", "c2"):
        await delete(world, member_key(name))
        await settled(world, *clients, shards=4)
        await asyncio.sleep(30)
        await settled(world, *clients, shards=4)
