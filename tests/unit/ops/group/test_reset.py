"""Test that a reset deletes all rows of an app, unless a client is alive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.coordination.startup_checks import check_group
from kinesumer.errors import AccessDeniedError, GroupBusyError, KinesumerError
from kinesumer.model.rows import Key
from kinesumer.ops.group import changes
from kinesumer.ports import Compare, StateStore, Write
from kinesumer.wire import rows
from tests.support.clients import reader
from tests.support.faulty import FaultyStore
from tests.support.world import APP, World

P = "shardId-000000000000"


async def consumed(world: World) -> None:
    """Let a client read two records and leave the group."""
    client = await reader(world, "ab")
    await client.stop()


async def put(world: World, pk: str, sk: str, **values: Any) -> None:
    await world.table.write(Write(Key(pk, sk), Compare("pk", "absent"), values))


async def reset(
    world: World, store: StateStore | None = None, *, with_go: bool = False
) -> changes.Inventory:
    return await changes.reset(world.context("operator", store=store), with_go=with_go)


def remaining_keys(world: World) -> list[tuple[str, str]]:
    """Return the keys of all remaining rows."""
    partitions = world.table._partitions
    return sorted((pk, sk) for pk, rest in partitions.items() for sk in rest.rows)


async def test_clients_begin_as_new_after_a_reset(world: World) -> None:
    await consumed(world)
    await changes.require_idle(world.context("operator"), with_go=False)
    inventory = await reset(world)
    assert (inventory.shards, len(inventory.members), inventory.rows) == (1, 1, 5)
    assert inventory.streams[0].positions == 1
    assert remaining_keys(world) == []
    client = world.client("c1")
    await world.until(lambda: client.texts == ["a", "b"])


async def test_rows_are_deleted_before_the_rows_that_name_them(world: World) -> None:
    await consumed(world)
    deleted: list[Key] = []

    def note(write: Write, _old: object, new: object) -> None:
        if new is None:
            deleted.append(write.key)

    world.table.on_write.append(note)
    await reset(world)
    arn = world.kinesis.stream("orders").arn
    assert [key.pk for key in deleted].index(f"shard#{APP}#{arn}") < deleted.index(
        rows.stream_key(APP, arn)
    )
    assert deleted[-1] == rows.group_key(APP)


async def test_other_apps_keep_their_rows(world: World) -> None:
    await consumed(world)
    mine = remaining_keys(world)
    await put(world, "group#app2", "group", group_id="g")
    await put(world, "member#app2", "c1", session="s")
    await put(world, "check_point#app2#orders", P, sequence_number="5")
    others = [key for key in remaining_keys(world) if key not in mine]
    await reset(world, with_go=True)
    assert remaining_keys(world) == others


async def test_corrupt_rows_are_deleted_too(world: World) -> None:
    await put(world, f"group#{APP}", "stream#odd", start=7)
    await put(world, f"shard#{APP}#odd", "what", epoch="x")
    await put(world, f"member#{APP}", "c1", dead=True)
    await put(world, f"leader#{APP}", "leader", session=5)
    await reset(world)
    assert remaining_keys(world) == []


async def test_positions_of_go_are_counted_and_kept_by_default(world: World) -> None:
    await consumed(world)
    await put(world, f"check_point#{APP}#orders", P, sequence_number="5")
    found = await changes.read_inventory(world.context("operator"))
    assert found.go_positions == 1
    await reset(world)
    assert remaining_keys(world) == [(f"check_point#{APP}#orders", P)]
    await put(world, f"group#{APP}", f"stream#{world.kinesis.stream('orders').arn}")
    await reset(world, with_go=True)
    assert remaining_keys(world) == []


class UndeletableRows(FaultyStore):
    """A table whose rows can be marked but not deleted."""

    async def write(self, write: Write) -> Any:
        if write.delete:
            raise AccessDeniedError("dynamodb:DeleteItem", "table t")
        return await super().write(write)


async def test_an_error_during_a_reset_says_what_to_do(world: World) -> None:
    await consumed(world)
    with pytest.raises(KinesumerError, match=r"DeleteItem.* run it again"):
        await reset(world, UndeletableRows(world.table))
    await reset(world)
    assert remaining_keys(world) == []


async def test_positions_of_a_live_go_fleet_arent_reset(world: World) -> None:
    now = rows.timestamp_text(world.clock.wall())
    await put(world, f"client#{APP}", "go-1", last_update=now)
    context = world.context("operator")
    await changes.require_idle(context, with_go=False)
    with pytest.raises(GroupBusyError):
        await changes.require_idle(context, with_go=True)


async def test_a_reset_waits_for_the_lease_of_a_killed_client(world: World) -> None:
    client = world.client("c1")
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    client.kill()
    await changes.require_idle(world.context("operator"), with_go=False)
    await reset(world)
    assert remaining_keys(world) == []


async def test_a_client_that_starts_before_the_mark_stops_the_reset(
    world: World,
) -> None:
    await consumed(world)
    await changes.require_idle(world.context("operator"), with_go=False)
    client = world.client("c2")
    await world.until(lambda: "c2" in world.members())
    with pytest.raises(GroupBusyError, match="c2; nothing was deleted"):
        await reset(world)
    world.put("c")
    await world.until(lambda: client.texts == ["c"])


async def test_a_client_that_starts_after_the_mark_is_refused(world: World) -> None:
    await consumed(world)
    store = FaultyStore(world.table)
    store.latency = 1.0
    resets = asyncio.ensure_future(reset(world, store))
    await world.until(lambda: any("resetting" in w.set for w in store.sent))
    await asyncio.sleep(2)
    client = world.client("c2")
    with pytest.raises(GroupBusyError, match="being reset: start again when"):
        async with asyncio.timeout(60):
            await client.task
    await client.stop()
    await resets
    again = world.client("c3")
    await world.until(lambda: again.texts == ["a", "b"])


async def test_an_interrupted_reset_is_completed_by_the_next(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await consumed(world)
    store = FaultyStore(world.table)
    store.latency = 1.0
    resets = asyncio.ensure_future(reset(world, store))
    await world.until(lambda: any(w.delete for w in store.sent))
    resets.cancel()
    await asyncio.wait([resets])
    assert resets.cancelled()
    assert "interrupted: the reset of app" in caplog.text
    assert "run it again" in caplog.text
    assert remaining_keys(world)
    with pytest.raises(
        GroupBusyError, match="if that command was interrupted, run it again"
    ):
        await check_group(world.context("c2"), None)
    await changes.require_idle(world.context("operator", store=store), with_go=False)
    await reset(world, store)
    assert remaining_keys(world) == []
