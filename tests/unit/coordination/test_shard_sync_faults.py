"""A stream's rows when the store or Kinesis fail, or are replaced."""

from __future__ import annotations

import asyncio

import pytest

from kinesumer.coordination.shard_sync import write_all
from kinesumer.errors import (
    AccessDeniedError,
    StateStoreMissingError,
    StreamRecreatedError,
)
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write
from tests.support.world import World, in_virtual_time
from tests.unit.coordination.test_shard_sync import P, SyncedStream, shards


@in_virtual_time
async def test_an_unavailable_store_and_kinesis_are_waited_for(world: World) -> None:
    syncer = SyncedStream(world)
    syncer.store.down = syncer.source.down = True
    task = world.loop.create_task(syncer.sync())
    await asyncio.sleep(60)
    syncer.source.down = False
    await asyncio.sleep(60)
    syncer.store.down = False
    assert await task
    assert syncer.row.baseline


@in_virtual_time
async def test_lost_answers_change_nothing(world: World) -> None:
    syncer = SyncedStream(world)
    for attribute in ("start", "baseline", "baseline", "ready"):
        syncer.store.spoil("unanswered", attribute)
    assert await syncer.sync()
    assert syncer.row.baseline
    assert shards(world)[P].ready


@in_virtual_time
async def test_a_stream_made_anew_is_fatal(world: World) -> None:
    syncer = SyncedStream(world)
    await syncer.sync()
    await asyncio.sleep(60)
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")
    with pytest.raises(StreamRecreatedError) as caught:
        await syncer.sync()
    assert syncer.stream.arn in str(caught.value)
    assert "2027-01-15T08:01:00" in str(caught.value)


@in_virtual_time
async def test_a_lost_table_is_fatal(world: World) -> None:
    world.table.delete_table()
    with pytest.raises(StateStoreMissingError):
        await SyncedStream(world).sync()


class Forbidden:
    """A way to a table that nobody may write."""

    async def write(self, write: Write) -> None:
        raise AccessDeniedError("dynamodb:DeleteItem", "table t")


@in_virtual_time
async def test_of_many_writes_the_first_fault_is_raised_as_it_is(world: World) -> None:
    writes = [Write(Key("p", str(n)), Compare("pk", "exists")) for n in range(100)]
    with pytest.raises(AccessDeniedError, match="dynamodb:DeleteItem"):
        await write_all(world.context(store=Forbidden()), writes)
