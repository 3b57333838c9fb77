"""Test what a session tells of its shards, and that a client leaves in good order."""

from __future__ import annotations

import asyncio

import pytest
from anyio import move_on_after

from kinesumer import Record
from kinesumer.errors import CommitTimeoutError, HandlerFailedError
from kinesumer.handlers import RetryPolicy
from kinesumer.model.rows import ISOLATING_DEATHS, Deaths
from tests.support.clients import (
    OLDEST,
    Thinking,
    consume,
    numbers,
    place,
    shard,
    sharing,
    spread,
)
from tests.support.world import ARN, InMemory, World


async def test_each_session_counts_its_shards_and_the_leader_all(world: World) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    await asyncio.sleep(5)
    assert sorted(client.leads for client in clients) == [False, True]
    for client in clients:
        state = client.group.read_gauges()
        [stream] = state.streams
        seen = (state.num_workers, stream.total_leases)
        assert seen == ((2, 4) if client.leads else (None, None))
        assert (stream.current_leases, stream.leases_to_take) == (2, 0)
        assert client.group.commit_share(ARN) == 0.5


async def test_work_and_the_clients_that_it_needs_are_measured(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    client = world.client("c1", handle=Thinking(0.01))
    spread(world, *numbers(0, 4000))
    await asyncio.sleep(20)
    state = client.group.read_gauges()
    # One loop handles the records of all shards, one after the other.
    assert state.work == pytest.approx(1.0, rel=0.1)
    assert state.clients_wanted == 2


async def test_shards_that_are_read_in_isolation_are_counted(world: World) -> None:
    [client] = await sharing(world, "c1", shards=4)
    owned = next(iter(client.group.owned_shards()))
    owned.row = owned.row._replace(deaths=Deaths(ISOLATING_DEATHS))
    assert client.group.read_gauges().streams[0].isolated_leases == 1


async def test_the_leader_syncs_all_streams_and_others_those_of_their_plan(
    world: World,
) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    for client in clients:
        session = client.group.session
        assert session is not None
        assert session.streams_to_sync(frozenset({ARN})) == (
            {ARN} if client.leads else set()
        )
        session.member = session.member._replace(syncs=frozenset({ARN, "other"}))
        assert session.streams_to_sync(frozenset({ARN})) == {ARN}


async def test_leaving_the_block_commits_releases_and_leaves(world: World) -> None:
    world.put("a", "b", "c")
    async with InMemory(world) as client:
        assert await consume(client, 3) == ["a", "b", "c"]
    assert shard(world).position == place(world, 1)
    assert shard(world).owner == ""
    assert world.members()["c1"].dead
    released, left = client.store.sent[-2:]
    assert "sequence_number" in released.set
    assert left.set["dead"] is True
    assert len(asyncio.all_tasks()) == 1


async def test_an_exception_in_the_body_leaves_its_record_undone(world: World) -> None:
    world.put("a", "b", "c")
    with pytest.raises(ZeroDivisionError):
        async with InMemory(world) as client:
            async for record in client.consume("orders", start=OLDEST):
                if record.data == b"b":
                    raise ZeroDivisionError
    assert shard(world).position == place(world, 0)
    assert shard(world).owner == ""
    async with InMemory(world, "c2") as client:
        assert await consume(client, 2) == ["b", "c"]


async def test_cancelling_leaves_in_order_too(world: World) -> None:
    world.put("a", "b")

    async def work() -> None:
        async with InMemory(world) as client:
            async for record in client.consume("orders", start=OLDEST):
                if record.data == b"b":
                    await asyncio.sleep(3600)

    task = world.loop.create_task(work())
    await asyncio.sleep(10)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert shard(world).position == place(world, 0)
    assert world.members()["c1"].dead
    assert len(asyncio.all_tasks()) == 1


async def test_cancelling_by_anyio_leaves_in_order_too(world: World) -> None:
    world.put("a", "b", "c")
    client = InMemory(world)
    seen: list[str] = []
    with move_on_after(30) as scope:
        async with client:
            async for record in client.consume("orders", start=OLDEST):
                seen.append(record.data.decode())
                if record.data == b"b":
                    await asyncio.sleep(60)
    assert scope.cancelled_caught
    assert seen == ["a", "b"]
    assert shard(world).position == place(world, 0)
    assert not shard(world).owner
    assert world.members()["c1"].dead


async def test_leaving_from_beside_the_loop_waits_for_the_handler(world: World) -> None:
    world.put("a", "b")
    client = InMemory(world)
    await client.__aenter__()

    async def work() -> None:
        async for _ in client.consume("orders", start=OLDEST):
            await asyncio.sleep(20)

    task = world.loop.create_task(work())
    await asyncio.sleep(5)
    began = world.clock.now()
    await client.__aexit__(None, None, None)
    assert 10 < world.clock.now() - began < 20
    assert shard(world).position == place(world, 0)
    await task


@pytest.mark.parametrize("error", [CommitTimeoutError, ZeroDivisionError])
async def test_leaving_while_the_store_is_down_says_so_in_time(
    world: World, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    world.put("a", "b")
    began = 0.0
    with pytest.raises(error) as caught:
        async with InMemory(world) as client:
            await consume(client, 2)
            client.store.down = True
            began = world.clock.now()
            if error is ZeroDivisionError:  # the caller gets the block's own error
                raise ZeroDivisionError
    assert "positions may not be stored" in f"{caught.value} {caplog.text}"
    assert world.clock.now() - began <= 8.1
    assert len(asyncio.all_tasks()) == 1


async def test_a_client_that_consumed_nothing_writes_nothing(world: World) -> None:
    async with InMemory(world) as client:
        client.consume("orders")
    assert world.table.snapshot() == []


async def test_shards_go_to_others_after_a_handler_failed(world: World) -> None:
    async def fail(record: Record) -> None:
        if record.data == b"b":
            raise ValueError

    world.put("a", "b")
    async with InMemory(world) as client:
        with pytest.raises(HandlerFailedError):
            await client.run(
                "orders",
                fail,
                start=OLDEST,
                retries=RetryPolicy(max_attempts=1),
                on_failure="stop-client",
            )
        assert world.members()["c1"].dead
        other = world.client("c2")
        await world.until(lambda: other.texts == ["b"], seconds=10)
        await asyncio.wait_for(client.leave(), 1)


async def test_a_cancelled_run_gives_its_shards_up(world: World) -> None:
    async def take(_: Record) -> None:
        await asyncio.sleep(3600)

    world.put("a")
    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.run("orders", take, start=OLDEST), 60)
        other = world.client("c2")
        await world.until(lambda: other.texts == ["a"], seconds=10)


async def test_run_raises_its_reason_though_the_store_is_down(world: World) -> None:
    async def fail(_: Record) -> None:
        client.store.down = True
        raise ValueError

    world.put("a")
    with pytest.raises(HandlerFailedError):
        async with InMemory(world) as client:
            await client.run(
                "orders", fail, start=OLDEST, retries=RetryPolicy(max_attempts=1)
            )


async def test_a_run_that_never_started_registers_nothing(world: World) -> None:
    async def take(_: Record) -> None: ...

    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.run("orders", take), 0.1)
    assert world.members() == {}
