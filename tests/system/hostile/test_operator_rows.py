"""Test broken rows of operators and Spark queries, and rows of unknown shards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.coordination import pauses
from kinesumer.errors import CorruptRowError, KinesumerError
from kinesumer.model.rows import Key, Value
from kinesumer.model.streams import Start
from kinesumer.wire import rows
from tests.support.clients import counts, numbers, settled, sharing, spread
from tests.support.mirrored_query import Query
from tests.support.operator import Operator
from tests.support.row_edits import (
    NULL,
    member_key,
    put,
    remove,
    row_errors,
    shard_keys,
    spoil,
)
from tests.support.world import APP, ARN, World

SHARD = "shardId-000000000000"


def key_of(world: World, target: str) -> Key:
    if target == "all":
        return rows.group_key(APP)
    return rows.stream_key(APP, ARN) if target == "stream" else shard_keys(world)[SHARD]


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
    shard = SHARD if target == "shard" else None
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
