"""Pauses and drained clients: rows as clients find them, and what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.admin import drain, seek
from kinesumer.admin.wait import wait_until_free
from kinesumer.coordination import pauses, store_queries
from kinesumer.errors import (
    ConfigurationError,
    GroupBusyError,
    KinesumerError,
)
from kinesumer.model.rows import QUERY, QUERY_ID, StreamRow
from kinesumer.model.streams import Start
from kinesumer.wire import rows, writes
from tests.support.operator import Desk, P, resharded
from tests.support.world import APP, ARN, FaultyStore, World, in_virtual_time
from tests.unit.test_client import InMemory, consume

if TYPE_CHECKING:
    from kinesumer.model.rows import Key

# --- pauses ---


@in_virtual_time
async def test_a_pause_marks_the_row_of_what_it_is_for(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    for stream, shard, key in (
        (None, None, rows.group_key(APP)),
        ("orders", None, rows.stream_key(APP, ARN)),
        ("orders", P, rows.shard_key(APP, desk.rows[P].key, 0)),
    ):
        await pauses.pause(desk.context, stream, shard, "bad data")
        row = desk.row(key)
        assert (row["paused"], row["pause_reason"]) == (True, "bad data")
        await pauses.resume(desk.context, stream, shard)
        assert not {"paused", "pause_reason"} & desk.row(key).keys()


@in_virtual_time
async def test_a_pause_tells_what_it_is_for_and_what_was_before(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    marked = await pauses.pause(desk.context, ARN, P, "first")
    assert (str(marked.target), marked.was_paused) == (
        f"shard {P} of stream orders",
        False,
    )
    marked = await pauses.pause(desk.context, ARN, P, "second")
    assert (marked.was_paused, marked.was_reason) == (True, "first")
    assert desk.rows[P].pause_reason == "second"
    marked = await pauses.resume(desk.context, ARN, P)
    assert (marked.was_paused, marked.was_reason) == (True, "second")


@in_virtual_time
async def test_every_live_client_is_told_of_a_pause(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    await desk.join("c1")
    await desk.join("c2")
    await world.table.write(writes.leave(APP, await desk.join("gone"), "now"))
    await pauses.pause(desk.context)
    assert desk.notices == {"c1": 1, "c2": 1, "gone": 0}
    await pauses.resume(desk.context)
    assert desk.notices == {"c1": 2, "c2": 2, "gone": 0}


@in_virtual_time
async def test_a_notice_whose_answer_is_lost_is_given_once(world: World) -> None:
    store = FaultyStore(world.table)
    desk = Desk(world, store)
    await desk.found()
    await desk.join("c1")
    store.spoil("unanswered", "notice")
    await pauses.notify(desk.context)
    assert desk.notices == {"c1": 1}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (("payments", None), f"no stream 'payments': use one of {ARN}"),
        (("orders", "shardId-9"), "no shard 'shardId-9'"),
        ((None, P), "name the stream, too"),
    ],
)
@in_virtual_time
async def test_what_the_app_doesnt_know_cant_be_paused(
    world: World, target: tuple[str | None, str | None], said: str
) -> None:
    desk = Desk(world)
    await desk.found()
    with pytest.raises(ConfigurationError, match=said):
        await pauses.pause(desk.context, *target)


@in_virtual_time
async def test_an_app_that_nobody_has_used_has_nothing_to_change(
    world: World,
) -> None:
    context = Desk(world).context
    for work in (
        pauses.pause(context),
        pauses.pause(context, "orders"),
        store_queries.read_streams(context),
    ):
        with pytest.raises(ConfigurationError, match="no app 'app'"):
            await work


@in_virtual_time
async def test_a_name_that_two_streams_have_isnt_enough(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    other = ARN.replace("123456789012", "210987654321")
    stream = StreamRow(other, 1.0, Start.TRIM_HORIZON)
    await world.table.write(writes.create_stream(APP, stream))
    with pytest.raises(ConfigurationError, match=f"several streams.*{ARN}.*{other}"):
        await pauses.pause(desk.context, "orders")
    await pauses.pause(desk.context, other)


@in_virtual_time
async def test_a_reason_has_to_be_short(world: World) -> None:
    desk = Desk(world)
    await desk.found()
    with pytest.raises(ConfigurationError, match="201 characters"):
        await pauses.pause(desk.context, reason="x" * 201)


# --- drained clients ---


@in_virtual_time
async def test_a_client_is_drained_and_let_in_again(world: World) -> None:
    desk = Desk(world)
    for client_id in ("c1", "c2"):
        await desk.join(client_id)
    assert not (await drain.drain(desk.context, "c1")).drained
    assert {name: m.drained for name, m in world.members().items()} == {
        "c1": True,
        "c2": False,
    }
    assert (await drain.drain(desk.context, "c1", undo=True)).drained
    assert not world.members()["c1"].drained


@in_virtual_time
async def test_the_last_client_that_takes_shards_isnt_drained(world: World) -> None:
    desk = Desk(world)
    await desk.join("c1")
    await desk.join("c2")
    await drain.drain(desk.context, "c2")
    with pytest.raises(ConfigurationError, match="c1 is the last client"):
        await drain.drain(desk.context, "c1")
    assert not world.members()["c1"].drained
    await drain.drain(desk.context, "c1", even_last=True)
    assert world.members()["c1"].drained


@in_virtual_time
async def test_only_clients_that_live_are_drained(world: World) -> None:
    desk = Desk(world)
    await desk.join("c1")
    await world.table.write(writes.leave(APP, await desk.join("c2"), "now"))
    with pytest.raises(ConfigurationError, match=r"no client 'c2'.*alive: c1"):
        await drain.drain(desk.context, "c2")


# --- queries ---


@in_virtual_time
async def test_nothing_is_changed_while_a_query_lives(world: World) -> None:
    desk = await resharded(world)
    before = desk.rows
    query = await desk.join(QUERY_ID, kind=QUERY)
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
        drain.drain(context, "c1"),
        seek.plan_seek(context, desk.stream, Start.LATEST),
    ):
        with pytest.raises(GroupBusyError, match="stop the query first"):
            await work
    assert desk.rows == before


# --- by code ---


@in_virtual_time
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


@in_virtual_time
async def test_a_pause_of_what_isnt_consumed_is_refused(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        with pytest.raises(KinesumerError, match="iterate over"):
            await client.pause()
        await consume(client, 1)
        with pytest.raises(ConfigurationError, match="no stream 'payments'"):
            await client.pause("payments")


@in_virtual_time
async def test_who_cant_see_whether_it_is_done_is_told_that_it_is_stored(
    world: World,
) -> None:
    store = FaultyStore(world.table)
    context = replace(world.context("operator", store=store), retry_seconds=1.0)
    store.down = True
    with pytest.raises(KinesumerError, match="stored, but"):
        await wait_until_free(context, lambda _: [], 60.0)
