"""Test moving a group from clients to a Spark query and back without loss."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.errors import ConfigurationError, GroupBusyError
from kinesumer.model.positions import After
from kinesumer.model.rows import QUERY_ID
from kinesumer.wire import writes
from kinesumer.wire.put_records import Entry, aggregate
from tests.support.clients import numbers
from tests.support.mirrored_query import Query, newest, owner, reading, stored
from tests.support.world import APP, ARN, Client, World


async def read_some(world: World, *texts: str) -> Client:
    world.put(*texts)
    client = world.client("c1", commit_interval_seconds=0.5)
    await world.until(lambda: len(client.texts) == len(texts))
    await asyncio.sleep(1.0)
    return client


async def test_a_crashed_client_costs_its_lease_and_loses_nothing(world: World) -> None:
    client = await read_some(world, "a", "b")
    world.put("c")
    client.kill()
    before = world.clock.now()
    query = await Query(world).start(checkpoint=True)
    assert 8.0 <= world.clock.now() - before < 9.0
    await query.batch()
    assert query.log.texts == ["c"]
    await world.until(lambda: owner(world) == QUERY_ID)


async def test_a_client_is_refused_while_a_query_lives(world: World) -> None:
    await Query(world).start()
    with pytest.raises(GroupBusyError, match="member spark-query"):
        await world.client("c1").task
    assert "c1" not in world.members()


async def test_a_query_is_refused_while_clients_live(world: World) -> None:
    client = await read_some(world, "a")
    with pytest.raises(
        GroupBusyError, match="clients of app 'app' are alive: c1; stop"
    ):
        await Query(world).start()
    world.put("b")
    await world.until(lambda: client.texts == ["a", "b"])
    assert world.members()[QUERY_ID].dead


async def test_of_a_client_and_a_query_at_most_one_starts(world: World) -> None:
    query, client = Query(world), world.client("c1")
    starting = asyncio.ensure_future(query.start())
    await asyncio.wait([starting, client.task], timeout=30.0)
    ended = [task.exception() for task in (starting, client.task) if task.done()]
    assert {type(error) for error in ended if error is not None} == {GroupBusyError}


async def test_a_client_suspended_while_a_query_took_over_ends(world: World) -> None:
    client = await read_some(world, "a")
    client.machine.freeze(60.0)
    query = await Query(world).start(checkpoint=True)
    world.put("b")
    await query.batch()
    with pytest.raises(GroupBusyError):
        await client.task
    assert client.texts + query.log.texts == ["a", "b"]


async def test_a_query_suspended_while_clients_took_over_ends(world: World) -> None:
    query = await reading(world, "a")
    query.machine.freeze(60.0)
    client = world.client("c1")
    world.put("b")
    await world.until(lambda: client.texts == ["b"])
    await asyncio.sleep(60.0)
    with pytest.raises(GroupBusyError, match="c1"):
        await query.batch()
    assert world.members()[QUERY_ID].dead
    assert owner(world) == "c1"


async def test_a_cancelled_start_leaves_no_member(world: World) -> None:
    (await Query(world).start()).kill()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5.0):
            await Query(world).start()
    await asyncio.sleep(20.0)
    assert world.members()[QUERY_ID].incarnation == 0


async def test_a_query_suspended_alone_goes_on(world: World) -> None:
    query = await reading(world, "a")
    query.machine.freeze(60.0)
    fence = writes.fence(APP, world.members()[QUERY_ID], "now")
    await world.table.write(fence)
    await asyncio.sleep(70.0)
    world.put("b")
    await query.batch()
    await asyncio.sleep(6.0)
    assert world.members()[QUERY_ID].incarnation == 1
    assert stored(world) == newest(world)


# --- with aggregates, with nothing there ----------------------------------------------


async def test_a_query_goes_on_within_an_aggregate(world: World) -> None:
    held = asyncio.Event()

    async def handle(_: Any) -> None:
        if len(client.seen) == 3:
            await held.wait()

    client = world.client("c1", commit_interval_seconds=0.5, handle=handle)
    parts = [Entry(text.encode(), "k") for text in numbers(0, 6)]
    world.kinesis.put("orders", aggregate(parts), explicit_hash_key=0)
    world.put("6")
    await world.until(lambda: len(client.seen) == 3)
    await asyncio.sleep(2.0)
    await client.stop(wait_for_user=False)
    query = await Query(world).start(checkpoint=True)
    [place] = query.log.offset[ARN].shards.values()
    assert isinstance(place, After)
    assert place.position.sub_sequence_number == 1
    await query.batch()
    assert query.log.texts == numbers(2, 7)
    await query.stop()
    world.put("7")
    again = world.client("c1")
    await world.until(lambda: again.texts == ["7"])


async def test_positions_of_an_unknown_group_are_an_error(world: World) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"checkpoint: table table-1 holds no positions of app 'app' .*{ARN}",
    ):
        await Query(world).start(checkpoint=True)


async def test_a_query_warns_if_the_group_is_ahead_of_its_checkpoint(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def go_on() -> None:
        again = await Query(world, query.log).start()
        await again.tell()
        await asyncio.sleep(6.0)
        await again.stop()

    query = await reading(world, "a")
    await query.stop()
    await go_on()
    assert "ahead of this query" not in caplog.text
    client = await read_some(world, "b")
    await client.stop()
    await go_on()
    assert "the group is ahead of this query in 1 shards" in caplog.text
