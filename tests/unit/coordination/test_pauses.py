"""Test pauses and drained clients: their rows, and invalid requests."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kinesumer.coordination import pauses, store_queries
from kinesumer.errors import ConfigurationError, GroupBusyError, KinesumerError
from kinesumer.model.rows import QUERY, QUERY_ID, Key, StreamRow
from kinesumer.model.streams import Start
from kinesumer.ops.group import changes, seek
from kinesumer.ops.group.changes import wait_until_free
from kinesumer.wire import admin_writes, rows, writes
from tests.support.clients import consume
from tests.support.faulty import FaultyStore
from tests.support.operator import Operator, P, resharded
from tests.support.world import APP, ARN, InMemory, World

# --- pauses ---


async def test_a_pause_is_stored_in_the_row_of_its_target(world: World) -> None:
    operator = await Operator(world).create_group()
    for stream, shard, key in (
        (None, None, rows.group_key(APP)),
        ("orders", None, rows.stream_key(APP, ARN)),
        ("orders", P, rows.shard_key(APP, operator.rows[P].key, 0)),
    ):
        await pauses.pause(operator.context, stream, shard, "bad data")
        row = operator.row(key)
        assert (row["paused"], row["pause_reason"]) == (True, "bad data")
        await pauses.resume(operator.context, stream, shard)
        assert not {"paused", "pause_reason"} & operator.row(key).keys()


async def test_the_end_of_a_pause_is_read_without_a_notice(world: World) -> None:
    operator = await Operator(world).create_group()
    cache = pauses.PauseCache(operator.context)
    await pauses.pause(operator.context)
    await cache.refresh(noticed=True)
    assert cache.pauses.everything
    await operator.context.write(admin_writes.resume(rows.group_key(APP)))

    await cache.refresh(noticed=False)

    assert not cache.pauses.everything


async def test_a_pause_returns_its_target_and_the_state_before(world: World) -> None:
    operator = await Operator(world).create_group()
    marked = await pauses.pause(operator.context, ARN, P, "first")
    assert (str(marked.target), marked.was_paused) == (
        f"shard {P} of stream orders",
        False,
    )
    marked = await pauses.pause(operator.context, ARN, P, "second")
    assert (marked.was_paused, marked.was_reason) == (True, "first")
    assert operator.rows[P].pause_reason == "second"
    marked = await pauses.resume(operator.context, ARN, P)
    assert (marked.was_paused, marked.was_reason) == (True, "second")


async def test_a_pause_notifies_every_live_client(world: World) -> None:
    operator = await Operator(world).create_group()
    await operator.join("c1")
    await operator.join("c2")
    await world.table.write(writes.leave(APP, await operator.join("gone"), "now"))
    await pauses.pause(operator.context)
    assert operator.notices == {"c1": 1, "c2": 1, "gone": 0}
    await pauses.resume(operator.context)
    assert operator.notices == {"c1": 2, "c2": 2, "gone": 0}


async def test_a_notice_without_an_answer_counts_once(world: World) -> None:
    store = FaultyStore(world.table)
    operator = await Operator(world, store).create_group()
    await operator.join("c1")
    store.spoil("unanswered", "notice")
    await pauses.notify(operator.context)
    assert operator.notices == {"c1": 1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("payments", None), f"no stream 'payments': use one of {ARN}"),
        (("ordrs", None), "no stream 'ordrs': did you mean 'orders'?"),
        (("orders", "shardId-9"), "no shard 'shardId-9'"),
        ((None, P), "name the stream, too"),
        (("orders", None, "x" * 201), "201 characters"),
    ],
)
async def test_unknown_targets_and_long_reasons_are_refused(
    world: World, arguments: Any, said: str
) -> None:
    operator = await Operator(world).create_group()
    with pytest.raises(ConfigurationError, match=said):
        await pauses.pause(operator.context, *arguments)


async def test_an_unknown_app_is_an_error(world: World) -> None:
    context = Operator(world).context
    for work in (
        pauses.pause(context),
        pauses.pause(context, "orders"),
        store_queries.read_streams(context),
    ):
        with pytest.raises(ConfigurationError, match="no app 'app'"):
            await work


async def test_a_name_that_two_streams_have_isnt_enough(world: World) -> None:
    operator = await Operator(world).create_group()
    other = ARN.replace("123456789012", "210987654321")
    stream = StreamRow(other, 1.0, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, stream))
    with pytest.raises(ConfigurationError, match=f"several streams.*{ARN}.*{other}"):
        await pauses.pause(operator.context, "orders")
    await pauses.pause(operator.context, other)


# --- drained clients ---


async def test_a_client_is_drained_and_let_in_again(world: World) -> None:
    operator = Operator(world)
    for client_id in ("c1", "c2"):
        await operator.join(client_id)
    assert not (await changes.drain(operator.context, "c1")).drained
    assert {name: m.drained for name, m in world.members().items()} == {
        "c1": True,
        "c2": False,
    }
    assert (await changes.drain(operator.context, "c1", undo=True)).drained
    assert not world.members()["c1"].drained


async def test_the_last_client_that_takes_shards_isnt_drained(world: World) -> None:
    operator = Operator(world)
    await operator.join("c1")
    await operator.join("c2")
    await changes.drain(operator.context, "c2")
    with pytest.raises(ConfigurationError, match="c1 is the last client"):
        await changes.drain(operator.context, "c1")
    assert not world.members()["c1"].drained
    await changes.drain(operator.context, "c1", even_last=True)
    assert world.members()["c1"].drained


async def test_only_clients_that_live_are_drained(world: World) -> None:
    operator = Operator(world)
    await operator.join("c1")
    await world.table.write(writes.leave(APP, await operator.join("c2"), "now"))
    with pytest.raises(ConfigurationError, match=r"no client 'c2'.*a live one \(c1\)"):
        await changes.drain(operator.context, "c2")


# --- queries ---


async def test_a_running_query_refuses_every_change(world: World) -> None:
    operator = await resharded(world)
    before = operator.rows
    query = await operator.join(QUERY_ID, kind=QUERY)
    reads: list[object] = []

    async def beat() -> None:
        member = world.members()[QUERY_ID]
        write = writes.heartbeat(APP, query, member.beat + 1, state="up", lease_ms=8000)
        await world.table.write(write)

    class Beating(FaultyStore):
        async def get(self, key: Key, *, consistent: bool = True) -> Any:
            reads.append(key)
            await beat()
            return await super().get(key, consistent=consistent)

    context = world.context("operator", store=Beating(world.table))
    for work in (
        pauses.pause(context),
        pauses.resume(context, "orders"),
        changes.drain(context, "c1"),
        seek.plan_seek(context, operator.stream, Start.LATEST),
    ):
        with pytest.raises(GroupBusyError, match="stop the query first"):
            await work
    assert operator.rows == before


# --- by code ---


async def test_a_client_pauses_for_all_and_resumes(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        assert await consume(client, 1) == ["a"]
        await client.pause("orders", P, "bad data")
        row = world.shard_rows()[P]
        assert (row.paused, row.pause_reason) == (True, "bad data")
        world.put("b")
        asking = asyncio.ensure_future(consume(client, 1))
        await asyncio.sleep(30)
        assert not asking.done()
        assert not world.shard_rows()[P].owner
        await client.resume("orders", P)
        assert await asking == ["b"]


async def test_a_client_pauses_only_after_it_has_consumed(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        with pytest.raises(KinesumerError, match="iterate over"):
            await client.pause()
        await consume(client, 1)
        with pytest.raises(ConfigurationError, match="no stream 'payments'"):
            await client.pause("payments")


async def test_an_unconfirmed_change_is_reported_as_stored(world: World) -> None:
    store = FaultyStore(world.table)
    context = replace(world.context("operator", store=store), retry_seconds=1.0)
    store.down = True
    with pytest.raises(KinesumerError, match="stored, but"):
        await wait_until_free(context, lambda _: [], 60.0)
