"""A reset deletes all rows of an app, and never under a live client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.admin import reset
from kinesumer.coordination.startup_checks import check_group
from kinesumer.errors import (
    AccessDeniedError,
    GroupBusyError,
    KinesumerError,
)
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.support.world import APP, FaultyStore, World, in_virtual_time

P = "shardId-000000000000"


async def consumed(world: World) -> None:
    """Let a client consume, and leave."""
    world.put("a", "b")
    client = world.client("c1")
    await world.until(lambda: client.texts == ["a", "b"])
    await client.stop()


async def put(world: World, pk: str, sk: str, **values: Any) -> None:
    await world.table.write(Write(Key(pk, sk), Compare("pk", "absent"), values))


def left(world: World) -> list[tuple[str, str]]:
    """Return the keys of all rows."""
    partitions = world.table._partitions
    return sorted((pk, sk) for pk, rest in partitions.items() for sk in rest.rows)


@in_virtual_time
async def test_clients_begin_as_new_after_a_reset(world: World) -> None:
    await consumed(world)
    context = world.context("operator")
    await reset.require_idle(context, with_go=False)
    found = await reset.reset(context, with_go=False)
    assert (found.shards, found.streams[0].positions, len(found.members)) == (1, 1, 1)
    assert found.rows == 5
    assert left(world) == []
    client = world.client("c1")
    await world.until(lambda: client.texts == ["a", "b"])


@in_virtual_time
async def test_rows_are_deleted_before_the_rows_that_lead_to_them(world: World) -> None:
    await consumed(world)
    gone: list[Key] = []

    def note(write: Write, _old: object, new: object) -> None:
        if new is None:
            gone.append(write.key)

    world.table.on_write.append(note)
    await reset.reset(world.context("operator"), with_go=False)
    arn = world.kinesis.stream("orders").arn
    assert [key.pk for key in gone].index(f"shard#{APP}#{arn}") < gone.index(
        rows.stream_key(APP, arn)
    )
    assert gone[-1] == rows.group_key(APP)


@in_virtual_time
async def test_other_apps_keep_their_rows(world: World) -> None:
    await consumed(world)
    mine = left(world)
    await put(world, "group#app2", "group", group_id="g")
    await put(world, "member#app2", "c1", session="s")
    await put(world, "check_point#app2#orders", P, sequence_number="5")
    others = [key for key in left(world) if key not in mine]
    await reset.reset(world.context("operator"), with_go=True)
    assert left(world) == others


@in_virtual_time
async def test_corrupt_rows_are_deleted_too(world: World) -> None:
    await put(world, f"group#{APP}", "stream#odd", start=7)
    await put(world, f"shard#{APP}#odd", "what", epoch="x")
    await put(world, f"member#{APP}", "c1", dead=True)
    await put(world, f"leader#{APP}", "leader", session=5)
    await reset.reset(world.context("operator"), with_go=False)
    assert left(world) == []


@in_virtual_time
async def test_positions_of_go_are_counted_and_kept_by_default(world: World) -> None:
    await consumed(world)
    await put(world, f"check_point#{APP}#orders", P, sequence_number="5")
    context = world.context("operator")
    assert (await reset.read_inventory(context)).go_positions == 1
    await reset.reset(context, with_go=False)
    assert left(world) == [(f"check_point#{APP}#orders", P)]
    await put(world, f"group#{APP}", f"stream#{world.kinesis.stream('orders').arn}")
    await reset.reset(context, with_go=True)
    assert left(world) == []


class Undeletable(FaultyStore):
    """A table whose rows can be marked but not deleted."""

    async def write(self, write: Write) -> Any:
        if write.delete:
            raise AccessDeniedError("dynamodb:DeleteItem", "table t")
        return await super().write(write)


@in_virtual_time
async def test_an_error_half_way_says_what_is_left_to_do(
    world: World,
) -> None:
    await consumed(world)
    context = world.context("operator", store=Undeletable(world.table))
    with pytest.raises(KinesumerError, match=r"DeleteItem.* run it again"):
        await reset.reset(context, with_go=False)
    await reset.reset(world.context("operator"), with_go=False)
    assert left(world) == []


@in_virtual_time
async def test_an_interruption_says_what_is_left_to_do(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await consumed(world)
    store = FaultyStore(world.table)
    store.latency = 1.0
    context = world.context("operator", store=store)
    task = asyncio.create_task(reset.reset(context, with_go=False))
    await asyncio.sleep(5.5)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert "interrupted: the reset of app" in caplog.text
    assert "run it again" in caplog.text


@in_virtual_time
async def test_a_live_client_stops_it(world: World) -> None:
    client = world.client("c1")
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    with pytest.raises(GroupBusyError, match="c1"):
        await reset.require_idle(world.context("operator"), with_go=False)


@in_virtual_time
async def test_clients_without_a_heartbeat_meanwhile_are_named_as_well(
    world: World,
) -> None:
    world.put("a")
    first = world.client("c1")
    await world.until(lambda: first.texts == ["a"])
    await asyncio.sleep(0.7)
    world.client("c2")
    await asyncio.sleep(3.0)
    told = set()
    for _ in range(8):
        with pytest.raises(GroupBusyError) as refused:
            await reset.require_idle(world.context("operator"), with_go=False)
        told.add(str(refused.value).split(": ")[1].removesuffix("; stop them first"))
        await asyncio.sleep(0.4)
    assert told <= {"c1, c2", "c1, and perhaps c2", "c2, and perhaps c1"}
    assert len(told) > 1


@in_virtual_time
async def test_a_live_go_fleet_keeps_its_positions(world: World) -> None:
    now = rows.timestamp_text(world.clock.wall())
    await put(world, f"client#{APP}", "go-1", last_update=now)
    context = world.context("operator")
    await reset.require_idle(context, with_go=False)
    with pytest.raises(GroupBusyError):
        await reset.require_idle(context, with_go=True)


@in_virtual_time
async def test_a_killed_client_is_awaited(world: World) -> None:
    client = world.client("c1")
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    client.kill()
    context = world.context("operator")
    await reset.require_idle(context, with_go=False)
    await reset.reset(context, with_go=False)
    assert left(world) == []


@in_virtual_time
async def test_a_client_that_starts_before_the_mark_stops_it(world: World) -> None:
    await consumed(world)
    context = world.context("operator")
    await reset.require_idle(context, with_go=False)
    client = world.client("c2")
    await world.until(lambda: "c2" in world.members())
    with pytest.raises(GroupBusyError, match="c2; nothing was deleted"):
        await reset.reset(context, with_go=False)
    world.put("c")
    await world.until(lambda: client.texts == ["c"])


@in_virtual_time
async def test_a_client_that_starts_after_the_mark_is_refused(world: World) -> None:
    await consumed(world)
    store = FaultyStore(world.table)
    context = world.context("operator", store=store)
    store.latency = 1.0
    resets = asyncio.ensure_future(reset.reset(context, with_go=False))
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


@in_virtual_time
async def test_a_reset_that_was_interrupted_is_finished_by_the_next(
    world: World,
) -> None:
    await consumed(world)
    store = FaultyStore(world.table)
    context = world.context("operator", store=store)
    store.latency = 1.0
    resets = asyncio.ensure_future(reset.reset(context, with_go=False))
    await world.until(lambda: any(w.delete for w in store.sent))
    resets.cancel()
    assert left(world)
    with pytest.raises(
        GroupBusyError, match="if that command was interrupted, run it again"
    ):
        await check_group(world.context("c2"), None)
    await reset.require_idle(context, with_go=False)
    await reset.reset(context, with_go=False)
    assert left(world) == []
