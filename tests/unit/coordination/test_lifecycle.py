"""Test how a client starts on demand, and how it ends."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kinesumer import (
    Record,
    Start,
    Stream,
)
from kinesumer.consuming.delivery import Records
from kinesumer.errors import (
    AccessDeniedError,
    ConfigurationError,
    GroupBusyError,
    StateStoreMissingError,
    StreamMissingError,
)
from kinesumer.model.rows import Key
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.wire import rows
from tests.support.clients import OLDEST, consume, place, shard
from tests.support.faulty import FaultyStore
from tests.support.world import APP, ARN, InMemory, World


async def test_leaving_during_the_start_ends_the_iteration(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        first = asyncio.create_task(consume(client, 1))
        await asyncio.sleep(0.1)
        await client.leave()
        assert await asyncio.wait_for(first, 1) == []


def future(world: World) -> Start:
    now = datetime.fromtimestamp(world.clock.wall(), UTC)
    return Start.at(now + timedelta(hours=1))


async def test_the_first_record_reports_what_aws_rejects(world: World) -> None:
    cases: list[tuple[Any, Start, type[Exception]]] = [
        ("missing", OLDEST, StreamMissingError),
        (["orders", ARN], OLDEST, ConfigurationError),
        ("orders", future(world), ConfigurationError),
        (Stream("orders", start=future(world)), OLDEST, ConfigurationError),
    ]
    for streams, start, error in cases:
        async with InMemory(world) as client:
            records = client.consume(streams, start=start)
            with pytest.raises(error):
                await anext(records)
            with pytest.raises(error):
                await anext(records)
    assert world.table.snapshot() == []
    world.table.delete_table()
    async with InMemory(world) as client:
        with pytest.raises(StateStoreMissingError):
            await consume(client, 1)


async def test_the_next_record_retries_a_failed_start(world: World) -> None:
    async with InMemory(world) as client:
        records = client.consume("payments", start=OLDEST)
        with pytest.raises(StreamMissingError):
            await anext(records)
        world.kinesis.create_stream("payments")
        world.kinesis.put("payments", b"a", explicit_hash_key=0)
        record = await asyncio.wait_for(anext(records), 30)
        assert record.data == b"a"
    assert len(asyncio.all_tasks()) == 1


async def test_after_a_failed_start_consume_may_be_called_again(world: World) -> None:
    seen: list[bytes] = []

    async def take(record: Record) -> None:
        seen.append(record.data)
        await client.leave()

    world.put("a")
    async with InMemory(world) as client:
        first = client.consume("payments", start=OLDEST)
        with pytest.raises(StreamMissingError):
            await anext(first)
        with pytest.raises(StreamMissingError):
            await anext(client.consume("payments"))
        with pytest.raises(StreamMissingError):
            await client.run("payments", take)
        with pytest.raises(ConfigurationError, match="the last call returned"):
            await anext(first)
        await client.run("orders", take, start=OLDEST)
    assert seen == [b"a"]


class DeniesAfterRegistration(FaultyStore):
    """A store whose first write of a member is applied, and gets an error."""

    async def write(self, write: Write) -> WriteResult:
        written = await super().write(write)
        if write.key.pk == f"member#{APP}" and len(self.sent) == 1:
            raise AccessDeniedError("dynamodb:GetItem", "table")
        return written


async def test_a_registered_client_may_retry_its_start(world: World) -> None:
    world.put("a")
    ports = world.ports(store=DeniesAfterRegistration(world.table))
    async with InMemory(world, ports=ports) as client:
        records = client.consume("orders", start=OLDEST)
        with pytest.raises(AccessDeniedError):
            await anext(records)
        assert (await anext(records)).data == b"a"
        assert not world.members()["c1"].dead
    assert len(asyncio.all_tasks()) == 1


async def test_a_client_that_has_left_does_not_start(world: World) -> None:
    async with InMemory(world) as client:
        records = client.consume("payments")
        with pytest.raises(StreamMissingError):
            await anext(records)
        await client.leave()
        world.kinesis.create_stream("payments")
        assert [record async for record in records] == []
    assert world.members() == {}


async def test_a_live_go_fleet_under_the_same_app_is_refused(world: World) -> None:
    moment = {"last_update": rows.timestamp_text(world.clock.wall() - 5)}
    key = Key(f"client#{APP}", "go-1")
    await world.table.write(Write(key, Compare("pk", "absent"), moment))
    async with InMemory(world) as client:
        with pytest.raises(GroupBusyError, match="go-1"):
            await consume(client, 1)


async def test_requests_with_a_timeout_may_be_repeated_during_the_start(
    world: World,
) -> None:
    world.put("a")
    async with InMemory(world) as client:
        records = client.consume("orders", start=OLDEST)
        record = None
        while record is None:
            with suppress(TimeoutError):
                record = await asyncio.wait_for(anext(records), 0.1)
            assert world.clock.now() < 5
        assert record.data == b"a"


async def test_a_cancelled_start_leaves_nothing_behind(world: World) -> None:
    async with InMemory(world) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consume(client, 1), 0.3)
    assert world.members() == {}
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("end", ["asks", "returns", "fails"])
async def test_leaving_waits_while_another_task_has_the_record(
    world: World, end: str
) -> None:
    async def work(records: Records) -> None:
        await asyncio.wait_for(anext(records), 60)
        got.set()
        await asyncio.sleep(5)
        if end == "fails":
            raise ValueError
        if end == "asks":
            with pytest.raises(StopAsyncIteration):
                await asyncio.wait_for(anext(records), 60)

    world.put("a")
    got = asyncio.Event()
    async with InMemory(world) as client:
        working = asyncio.create_task(work(client.consume("orders", start=OLDEST)))
        await got.wait()
        began = world.clock.now()
    assert 5 <= world.clock.now() - began < 6
    await asyncio.wait([working])
    assert isinstance(working.exception(), ValueError) == (end == "fails")
    assert shard(world).position == (place(world, 0) if end == "asks" else None)


async def test_a_task_with_a_record_may_leave_at_once(world: World) -> None:
    world.put("a")
    async with InMemory(world) as client:
        await asyncio.wait_for(anext(client.consume("orders", start=OLDEST)), 60)
        began = world.clock.now()
    assert world.clock.now() - began < 1
