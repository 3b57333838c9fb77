"""From plain clients to a query and back: nothing lost, parents before children."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.errors import ConfigurationError, GroupBusyError
from kinesumer.model.rows import QUERY_ID
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import END, After
from kinesumer.wire import writes
from kinesumer.wire.put_records import UserRecord, aggregate
from tests.support.clients import numbers, spread
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.spark.a_query import Query

if TYPE_CHECKING:
    from tests.support.world import Client

P, LOW, HIGH = (f"shardId-{n:012}" for n in range(3))


async def stopped(client: Client) -> Client:
    await client.stop()
    return client


async def read_some(world: World, *texts: str) -> Client:
    """Return a client that has read some records and stored so."""
    world.put(*texts)
    client = world.client("c1", commit_interval_seconds=0.5)
    await world.until(lambda: len(client.texts) == len(texts))
    await asyncio.sleep(1.0)
    return client


@in_virtual_time
async def test_a_query_goes_on_where_clients_stopped(world: World) -> None:
    client = await read_some(world, "a", "b")
    await client.stop()
    world.put("c", "d")
    query = await Query(world).start(checkpoint=True)
    await query.batch()
    assert client.texts + query.log.texts == ["a", "b", "c", "d"]


@in_virtual_time
async def test_clients_go_on_where_a_query_stopped(world: World) -> None:
    world.put("a", "b")
    query = await Query(world).start()
    await query.batch()
    await query.stop()
    world.put("c", "d")
    client = world.client("c1", start=Start.LATEST)
    await world.until(lambda: client.texts == ["c", "d"])


@in_virtual_time
async def test_a_crashed_client_costs_its_lease_and_loses_nothing(world: World) -> None:
    client = await read_some(world, "a", "b")
    world.put("c")
    client.kill()
    before = world.clock.now()
    query = await Query(world).start(checkpoint=True)
    assert 8.0 <= world.clock.now() - before < 9.0
    await query.batch()
    assert query.log.texts == ["c"]
    await world.until(lambda: _owner(world, P) == QUERY_ID)


@in_virtual_time
async def test_a_crashed_query_costs_its_lease_and_loses_nothing(world: World) -> None:
    world.put("a")
    query = await Query(world).start()
    await query.batch()
    await asyncio.sleep(1.0)
    world.put("b")
    await query.batch()
    query.kill()
    before = world.clock.now()
    client = world.client("c1")
    await world.until(lambda: client.texts == ["b"])
    assert 8.0 <= world.clock.now() - before < 14.0


@in_virtual_time
async def test_a_client_is_refused_while_a_query_lives(world: World) -> None:
    query = await Query(world).start()
    await query.batch()
    client = world.client("c1")
    with pytest.raises(GroupBusyError, match="member spark-query"):
        await client.task
    assert "c1" not in world.members()


@in_virtual_time
async def test_a_query_is_refused_while_clients_live(world: World) -> None:
    client = await read_some(world, "a")
    with pytest.raises(
        GroupBusyError, match="clients of app 'app' are alive: c1; stop"
    ):
        await Query(world).start()
    world.put("b")
    await world.until(lambda: client.texts == ["a", "b"])
    assert world.members()[QUERY_ID].dead


@in_virtual_time
async def test_clients_that_live_take_no_notice_of_a_query_refused(
    world: World,
) -> None:
    first, second = world.client("c1"), world.client("c2")
    world.kinesis.split("orders", P)
    await world.until(lambda: first.held and second.held, 90.0)
    plans = world.members()["c1"].plan, world.members()["c2"].plan
    with pytest.raises(GroupBusyError):
        await Query(world).start()
    await asyncio.sleep(10.0)
    assert (world.members()["c1"].plan, world.members()["c2"].plan) == plans
    assert world.members()["c1"].clients == 2


@in_virtual_time
async def test_of_both_started_at_once_one_at_most_goes_on(world: World) -> None:
    query, client = Query(world), world.client("c1")
    starting = asyncio.ensure_future(query.start())
    await asyncio.wait([starting, client.task], timeout=30.0)
    refused = [
        task.exception()
        for task in (starting, client.task)
        if task.done() and task.exception() is not None
    ]
    assert refused
    assert {type(error) for error in refused} == {GroupBusyError}


@in_virtual_time
async def test_a_client_suspended_while_a_query_took_over_ends(world: World) -> None:
    client = await read_some(world, "a")
    client.machine.freeze(60.0)
    query = await Query(world).start(checkpoint=True)
    world.put("b")
    await query.batch()
    with pytest.raises(GroupBusyError):
        await client.task
    assert client.texts + query.log.texts == ["a", "b"]


@in_virtual_time
async def test_a_query_suspended_while_clients_took_over_ends(world: World) -> None:
    world.put("a")
    query = await Query(world).start()
    await query.batch()
    await asyncio.sleep(1.0)
    query.machine.freeze(60.0)
    client = world.client("c1")
    world.put("b")
    await world.until(lambda: client.texts == ["b"])
    await asyncio.sleep(60.0)
    with pytest.raises(GroupBusyError, match="c1"):
        await query.batch()
    assert world.members()[QUERY_ID].dead
    assert _owner(world, P) == "c1"


@in_virtual_time
async def test_a_start_given_up_leaves_nobody_registered(world: World) -> None:
    (await Query(world).start()).kill()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5.0):
            await Query(world).start()
    await asyncio.sleep(20.0)
    assert world.members()[QUERY_ID].incarnation == 0


@in_virtual_time
async def test_a_query_suspended_alone_goes_on(world: World) -> None:
    world.put("a")
    query = await Query(world).start()
    await query.batch()
    await asyncio.sleep(1.0)
    query.machine.freeze(60.0)
    fence = writes.fence(APP, world.members()[QUERY_ID], "now")
    await world.table.write(fence)
    await asyncio.sleep(70.0)
    world.put("b")
    await query.batch()
    await asyncio.sleep(6.0)
    assert world.members()[QUERY_ID].incarnation == 1
    assert _position(world, P) == str(world.kinesis.stream("orders").next_number - 1)


def _owner(world: World, shard_id: str) -> str:
    found = world.shard_rows().get(shard_id)
    return found.owner_id if found else ""


def _position(world: World, shard_id: str) -> str:
    position = world.shard_rows()[shard_id].position
    return position.sequence_number if position else ""


# --- in the middle of a reshard, with aggregates, with nothing there ------------------


@in_virtual_time
@pytest.mark.parametrize("crash", [False, True])
async def test_a_query_takes_over_in_the_middle_of_a_reshard(
    world: World, crash: bool
) -> None:
    handled = asyncio.Event()

    async def handle(_: Any) -> None:
        if len(client.seen) == 3:
            await handled.wait()

    client = world.client("c1", commit_interval_seconds=0.5, handle=handle)
    spread(world, *numbers(0, 4))
    await world.until(lambda: len(client.seen) == 3)
    await asyncio.sleep(2.0)
    low, high = world.kinesis.split("orders", P)
    spread(world, *numbers(4, 8))
    merged = world.kinesis.merge("orders", low, high)
    spread(world, *numbers(8, 12))
    if crash:
        client.kill()
    else:
        await client.stop(wait_for_user=False)
    query = await Query(world).start(checkpoint=True)
    for _ in range(3):
        await query.batch()
    await world.until(lambda: _owner(world, merged) == QUERY_ID)
    assert query.log.texts[:2] == ["2", "3"]
    assert {*client.texts, *query.log.texts} == {*numbers(0, 12)}
    assert sorted(query.log.texts[2:]) == sorted(numbers(4, 12))
    assert all(r.ended for s, r in world.shard_rows().items() if s != merged)


@in_virtual_time
@pytest.mark.parametrize("crash", [False, True])
async def test_clients_take_over_in_the_middle_of_a_reshard(
    world: World, crash: bool
) -> None:
    spread(world, *numbers(0, 4))
    query = await Query(world).start()
    await query.batch()
    low, high = world.kinesis.split("orders", P)
    spread(world, *numbers(4, 8))
    await asyncio.sleep(6.0)
    await query.batch()  # the parent's end
    await asyncio.sleep(6.0 if crash else 0.0)
    world.kinesis.merge("orders", low, high)
    spread(world, *numbers(8, 12))
    if crash:
        query.kill()
    else:
        await query.stop()
    client = world.client("c1", start=Start.LATEST)
    await world.until(lambda: {*client.texts} == {*numbers(4, 12)}, 90.0)
    assert len(client.texts) == 8
    assert {*client.texts[:4]} == {*numbers(4, 8)}


@in_virtual_time
async def test_a_query_goes_on_within_an_aggregate(world: World) -> None:
    held = asyncio.Event()

    async def handle(_: Any) -> None:
        if len(client.seen) == 3:
            await held.wait()

    client = world.client("c1", commit_interval_seconds=0.5, handle=handle)
    parts = [UserRecord(text.encode(), "k") for text in numbers(0, 6)]
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


@in_virtual_time
async def test_positions_of_a_group_that_is_not_there_are_an_error(
    world: World,
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"checkpoint: table table-1 holds no positions of app 'app' .*{ARN}",
    ):
        await Query(world).start(checkpoint=True)


@in_virtual_time
async def test_shards_that_nobody_has_begun_start_where_the_group_does(
    world: World,
) -> None:
    client = await read_some(world)
    await world.until(lambda: client.held)
    await client.stop()
    query = await Query(world).start(checkpoint=True)
    assert query.log.offset[ARN].shards == {P: Start.TRIM_HORIZON}
    await query.stop()


@in_virtual_time
async def test_ended_shards_are_not_read_again(world: World) -> None:
    client = await read_some(world, "a")
    world.kinesis.split("orders", P)
    spread(world, "b", "c")
    await world.until(lambda: len(client.texts) == 3)
    await client.stop()
    query = await Query(world).start(checkpoint=True)
    assert query.log.offset[ARN].shards[P] == END
    await query.batch()
    assert query.log.texts == []


@in_virtual_time
async def test_an_old_checkpoint_of_spark_is_told_from_a_new_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("a")
    query = await Query(world).start()
    await query.batch()
    await query.stop()
    again = await Query(world, query.log).start()
    await again.tell()
    await asyncio.sleep(6.0)
    await again.stop()
    assert "ahead of this query" not in caplog.text

    client = await read_some(world, "b")
    await client.stop()
    late = await Query(world, query.log).start()
    await late.tell()
    await asyncio.sleep(6.0)
    assert "the group is ahead of this query in 1 shards" in caplog.text
    await late.stop()
