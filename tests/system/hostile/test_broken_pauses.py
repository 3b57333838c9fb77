"""What operators left in rows, spoiled: what was paused stays so, and says so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.coordination import pauses
from kinesumer.errors import CorruptRowError
from kinesumer.wire import rows
from tests.support.clients import counts, numbers, settled, spread
from tests.support.world import APP, ARN, World, in_virtual_time
from tests.system.hostile.hands import NULL, member_key, shard_keys, spoil, take_out
from tests.system.hostile.test_broken_rows import told

if TYPE_CHECKING:
    from kinesumer.model.rows import Key, Value

SHARD = "shardId-000000000000"


def key_of(world: World, what: str) -> Key:
    if what == "all":
        return rows.group_key(APP)
    return rows.stream_key(APP, ARN) if what == "stream" else shard_keys(world)[SHARD]


@pytest.mark.parametrize("values", [{"pause_reason": NULL}, {"paused": "yes"}], ids=str)
@pytest.mark.parametrize("what", ["all", "stream", "shard"])
@in_virtual_time
async def test_a_pause_that_cannot_be_read_stays_a_pause(
    world: World, caplog: pytest.LogCaptureFixture, what: str, values: dict[str, Any]
) -> None:
    client = world.client("c1")
    await settled(world, client, shards=1)
    desk = world.context("operator")
    stream = None if what == "all" else "orders"
    shard = SHARD if what == "shard" else None
    await pauses.pause(desk, stream, shard, "upgrade")
    await world.until(lambda: not client.held)
    key = key_of(world, what)
    await spoil(world, key, **values)
    await pauses.notify(desk)
    world.put("a")
    await asyncio.sleep(700)
    assert client.seen == []
    assert told(caplog, key, next(iter(values)))
    assert not client.task.done()
    await take_out(world, key, "paused", "pause_reason")
    await pauses.notify(desk)
    await world.until(lambda: client.texts == ["a"], seconds=120)


@pytest.mark.parametrize(
    "values", [{"notice": "7"}, {"notice": NULL}, {"drained": "no"}], ids=str
)
@in_virtual_time
async def test_an_operators_mark_that_cannot_be_read_costs_a_session_only(
    world: World, caplog: pytest.LogCaptureFixture, values: dict[str, Any]
) -> None:
    world.kinesis.create_stream("orders", 4)
    clients = [world.client(name) for name in ("c1", "c2")]
    await settled(world, *clients, shards=4)
    await spoil(world, member_key("c2"), **values)
    await pauses.notify(world.context("operator"))
    spread(world, *numbers(0, 40))
    await world.until(lambda: len(counts(*clients)) == 40, seconds=150)
    assert not clients[0].task.done()
    again = world.client("c2") if clients[1].task.done() else clients[1]
    await settled(world, clients[0], again, shards=4)


@pytest.mark.parametrize("value", ["yes", NULL, 1], ids=str)
@in_virtual_time
async def test_a_mark_of_a_reset_that_cannot_be_read_keeps_out_who_starts_only(
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
    await take_out(world, key, "resetting")
    third = world.client("c3")
    await first.stop()
    await settled(world, third, shards=1)
