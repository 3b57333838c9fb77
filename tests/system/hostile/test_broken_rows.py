"""Test that a broken row stops only its shard or client, and that an error names it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.coordination import pauses
from kinesumer.errors import CorruptRowError, InvalidPositionError, KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Value
from kinesumer.model.streams import Start
from kinesumer.wire import rows
from tests.support.clients import counts, numbers, settled, sharing, spread
from tests.support.faulty import FaultySource
from tests.support.mirrored_query import Query
from tests.support.operator import Operator
from tests.support.row_edits import (
    NULL,
    delete,
    member_key,
    put,
    remove,
    row_errors,
    shard_keys,
    spoil,
)
from tests.support.world import APP, ARN, World

SHARDS = [f"shardId-{n:012}" for n in range(4)]
P = SHARDS[0]


# --- shard rows ---


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("start", "EVERYWHERE"), ("epoch", "7"), ("sequence_number", NULL)],
)
async def test_a_broken_shard_row_stops_only_its_shard(
    world: World, caplog: pytest.LogCaptureFixture, attribute: str, value: Value
) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    key = shard_keys(world)[P]
    clients[0].kill()
    clients[1].kill()
    sound = await spoil(world, key, **{attribute: value})
    third = world.client("c3")
    await world.until(lambda: len(third.held) == 3)
    spread(world, *numbers(0, 80))
    await asyncio.sleep(60)
    assert len(third.seen) == 60
    assert third.held == SHARDS[1:]
    assert row_errors(caplog, key, attribute)
    assert not third.task.done()
    put(world, sound)
    await world.until(lambda: len(third.seen) == 80, seconds=90)


class Refusing(FaultySource):
    """Refuses, as Kinesis does, a sequence number of another stream."""

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        if isinstance(after, Position) and after.sequence_number == "7" * 60:
            raise InvalidPositionError("it did not come from this stream")
        return await super().get_iterator(shard_id, after)


async def test_a_position_that_kinesis_refuses_stops_its_shard_until_corrected(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    [first] = await sharing(world, "c1", shards=2)
    await first.stop()
    key = shard_keys(world)[P]
    await spoil(world, key, sequence_number="7" * 60)
    clients = [
        world.client(name, source=lambda s: Refusing(world.kinesis.source(s)))
        for name in ("c2", "c3")
    ]
    spread(world, *numbers(0, 8))
    await asyncio.sleep(30)
    assert [*clients[0].held, *clients[1].held] == [SHARDS[1]]
    assert row_errors(caplog, key, "sequence_number")
    assert len(counts(*clients)) == 4
    epoch = world.shard_rows()[P].epoch
    await asyncio.sleep(300)
    assert world.shard_rows()[P].epoch == epoch
    await remove(world, key, "sequence_number")
    await world.until(lambda: len(counts(*clients)) == 8, seconds=90)


# --- member rows ---

BROKEN_MEMBER: list[tuple[str, dict[str, Any]]] = [
    ("c1", {"session": 5}),
    ("c1", {"lease_ms": 0}),
    ("c1", {"range": "9:zz"}),
    ("c1", {"dead": "no"}),
    ("c2", {"beat": NULL}),
    ("c2", {"session": NULL}),
    ("c2", {"lease_ms": 0}),
    ("c2", {"streams": "orders"}),
    ("c2", {"dead": NULL}),
    ("c2", {"clients": 10**30}),
]


@pytest.mark.parametrize(("victim", "values"), BROKEN_MEMBER)  # c1 leads
async def test_a_broken_member_row_ends_only_that_clients_session(
    world: World, victim: str, values: dict[str, Any]
) -> None:
    names = ["c1", "c2", "c3"]
    clients = dict(zip(names, await sharing(world, *names, shards=4), strict=True))
    sessions = {name: row.session for name, row in world.members().items()}
    clients[victim].kill()
    await spoil(world, member_key(victim), **values)
    others = [client for name, client in clients.items() if name != victim]
    spread(world, *numbers(0, 80))
    # If a member's lease duration can't be read, a lease of one minute is assumed.
    await world.until(lambda: len(counts(*others)) == 80, seconds=150)
    await settled(world, *others, shards=4)
    assert any(other.leads for other in others)
    for name in clients.keys() - {victim}:
        row = await world.table.get(member_key(name))
        assert row is not None
        assert row["session"] == sessions[name]
    again = world.client(victim)
    await settled(world, again, *others, shards=4)


@pytest.mark.parametrize("values", [{"range": "9:zz"}, {"streams": "x"}], ids=str)
async def test_a_client_with_a_broken_row_reports_it_and_releases_its_shards(
    world: World, values: dict[str, Any]
) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    await spoil(world, member_key("c2"), **values)
    await asyncio.wait([clients[1].task], timeout=10)
    error = clients[1].task.exception()
    assert isinstance(error, CorruptRowError)
    assert f"sk='c2': attribute {next(iter(values))}" in str(error)
    await clients[1].stop()
    await settled(world, clients[0], shards=4)
    assert not clients[0].task.done()


async def test_a_member_row_without_attributes_is_reported_and_pruned(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    put(world, {"pk": f"member#{APP}", "sk": "a note"})
    client = world.client("c1")
    await world.until(lambda: client.held)
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    assert row_errors(caplog, member_key("a note"), "session")
    await asyncio.sleep(90)
    row = await world.table.get(member_key("a note"))
    assert row is not None
    assert row["dead"] is True
    # The row is pruned like that of any member that has been dead for an hour.
    async with asyncio.timeout(2 * 3600):
        while await world.table.get(member_key("a note")):
            await asyncio.sleep(60)


# --- the leader's row, a stream's and the group's ---


@pytest.mark.parametrize(
    ("attribute", "value"), [("leader_epoch", "1"), ("session", NULL)]
)
async def test_a_broken_leader_row_stops_only_planning(
    world: World, caplog: pytest.LogCaptureFixture, attribute: str, value: Value
) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    key = rows.leader_key(APP)
    sound = await spoil(world, key, **{attribute: value})
    third = world.client("c3")
    spread(world, *numbers(0, 80))
    await world.until(lambda: len(counts(*clients)) == 80)
    await asyncio.sleep(30)
    assert third.held == []
    assert row_errors(caplog, key, attribute)
    assert not any(client.task.done() for client in (*clients, third))
    put(world, sound)
    await settled(world, *clients, third, shards=4)


@pytest.mark.parametrize("attribute", ["start", "stream_created_at", "baseline"])
async def test_a_broken_stream_row_stops_only_its_stream(
    world: World, caplog: pytest.LogCaptureFixture, attribute: str
) -> None:
    world.kinesis.create_stream("payments")
    first = world.client("c1", "orders", "payments")
    await world.until(lambda: len(first.held) == 2)
    first.kill()
    key = rows.stream_key(APP, ARN)
    sound = await spoil(world, key, **{attribute: NULL})
    second = world.client("c2", "orders", "payments")
    world.put("a")
    world.put("b", stream="payments")
    await world.until(lambda: second.texts == ["b"])
    await asyncio.sleep(120)
    assert second.texts == ["b"]
    assert row_errors(caplog, key, attribute)
    assert not second.task.done()
    put(world, sound)
    await world.until(lambda: second.texts == ["b", "a"], seconds=400)


async def test_a_group_of_a_later_version_is_refused(world: World) -> None:
    first = world.client("c1")
    await world.until(lambda: first.held)
    await first.stop()
    await spoil(world, rows.group_key(APP), version=2)
    second = world.client("c2")
    await asyncio.wait([second.task], timeout=60)
    error = second.task.exception()
    assert isinstance(error, CorruptRowError)
    assert "attribute version 2 can't be read" in str(error)


def checkpoint(world: World, number: Value) -> None:
    """Write a checkpoint as Kinesumer for Go does."""
    row = {"pk": f"check_point#{APP}#orders", "sk": P, "sequence_number": number}
    put(world, {**row, "last_update": "2026-11-21T10:00:00.123456789+09:00"})


@pytest.mark.parametrize("number", ["", "LATEST", NULL])
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


async def test_a_deleted_member_row_ends_only_that_session(world: World) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    for name in ("c1", "c2"):
        await delete(world, member_key(name))
        await settled(world, *clients, shards=4)
        await asyncio.sleep(30)
        await settled(world, *clients, shards=4)


# --- rows of operators and Spark queries ---


def key_of(world: World, target: str) -> Key:
    if target == "all":
        return rows.group_key(APP)
    return rows.stream_key(APP, ARN) if target == "stream" else shard_keys(world)[P]


@pytest.mark.parametrize(
    ("target", "values"),
    [
        ("all", {"pause_reason": NULL}),
        ("all", {"paused": "yes"}),
        ("stream", {"paused": "yes"}),
        ("shard", {"pause_reason": NULL}),
    ],
)
async def test_an_unreadable_pause_remains_a_pause(
    world: World, caplog: pytest.LogCaptureFixture, target: str, values: dict[str, Any]
) -> None:
    client = world.client("c1")
    await settled(world, client, shards=1)
    operator = world.context("operator")
    stream = None if target == "all" else "orders"
    shard = P if target == "shard" else None
    await pauses.pause(operator, stream, shard, "upgrade")
    await world.until(lambda: not client.held)
    key = key_of(world, target)
    await spoil(world, key, **values)
    await pauses.notify(operator)
    world.put("a")
    await asyncio.sleep(700)
    assert client.seen == []
    assert row_errors(caplog, key, next(iter(values)))
    assert not client.task.done()
    await remove(world, key, "paused", "pause_reason")
    await pauses.notify(operator)
    await world.until(lambda: client.texts == ["a"], seconds=120)


@pytest.mark.parametrize(
    "values", [{"notice": "7"}, {"notice": NULL}, {"drained": "no"}], ids=str
)
async def test_an_unreadable_operator_attribute_ends_at_most_that_session(
    world: World, caplog: pytest.LogCaptureFixture, values: dict[str, Any]
) -> None:
    clients = await sharing(world, "c1", "c2", shards=4)
    await spoil(world, member_key("c2"), **values)
    await pauses.notify(world.context("operator"))
    spread(world, *numbers(0, 40))
    await world.until(lambda: len(counts(*clients)) == 40, seconds=150)
    assert not clients[0].task.done()
    again = world.client("c2") if clients[1].task.done() else clients[1]
    await settled(world, clients[0], again, shards=4)


@pytest.mark.parametrize("value", ["yes", NULL], ids=str)
async def test_an_unreadable_reset_mark_stops_only_starting_clients(
    world: World, value: Value
) -> None:
    first = world.client("c1")
    await settled(world, first, shards=1)
    key = rows.group_key(APP)
    await spoil(world, key, resetting=value)
    second = world.client("c2")
    await asyncio.wait([second.task], timeout=60)
    error = second.task.exception()
    assert isinstance(error, CorruptRowError)
    assert "sk='group': attribute resetting" in str(error)
    await pauses.notify(world.context("operator"))
    world.put("a")
    await world.until(lambda: first.texts == ["a"])
    await asyncio.sleep(600)
    assert not first.task.done()
    await remove(world, key, "resetting")
    third = world.client("c3")
    await first.stop()
    await settled(world, third, shards=1)


async def test_a_seek_fails_and_names_a_row_of_an_unknown_shard(world: World) -> None:
    operator = Operator(world)
    await operator.create_group()
    [key] = shard_keys(world).values()
    before = await world.table.get(key)
    assert before is not None
    stray = Key(f"shard#{APP}#{ARN}", f"{key.sk.partition('/')[0]}/shardId-typo")
    put(world, {**before, "sk": stray.sk})
    with pytest.raises(KinesumerError, match="omitted shard shardId-typo for two"):
        await operator.seek(Start.TRIM_HORIZON)
    assert await world.table.get(key) == before


async def test_an_unreadable_shard_row_of_a_query_delays_no_other_shard(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.kinesis.create_stream("orders", 2)
    query = await Query(world).start()
    await query.batch()
    await world.until(lambda: len(world.shard_rows()) == 2)
    low, high = (f"shardId-{n:012}" for n in range(2))
    key = shard_keys(world)[low]
    await spoil(world, key, epoch="?")
    spread(world, *numbers(0, 8))
    await query.batch()
    world.kinesis.split("orders", high)
    await query.batch()
    await asyncio.sleep(60)
    await spoil(world, key, epoch=1)
    assert "attribute epoch '?' can't be read" in caplog.text
    assert world.shard_rows()[high].ended
    await query.batch()
    await world.until(lambda: world.shard_rows()[low].position is not None)
