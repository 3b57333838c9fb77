"""Test whole clients in outages, with several streams, and at fatal errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kinesumer.coordination.membership import Failed
from kinesumer.errors import (
    AccessDeniedError,
    StateStoreMissingError,
    StateStoreRecreatedError,
    StreamRecreatedError,
)
from kinesumer.model.records import Page
from kinesumer.model.streams import StreamInfo
from kinesumer.ports import Reservation
from tests.support.clients import Thinking, counts, numbers, settled, spread
from tests.support.faulty import FaultySource, FaultyStore
from tests.support.world import World

P = "shardId-000000000000"


# --- faults that come together ---


async def test_only_the_first_fatal_error_is_raised(world: World) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)

    async def fail() -> None:
        raise StateStoreMissingError("the first")

    first = client.group._tasks.create_task(fail())
    second = Failed(StateStoreMissingError("the second"))
    first.add_done_callback(lambda _: client.group._notify(second))
    with pytest.raises(StateStoreMissingError, match="the first"):
        await client.task


async def test_shards_of_a_client_that_failed_go_to_others(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    source = FaultySource(world.kinesis.source("orders"))
    fails = world.client("c1", source=lambda _: source)
    other = world.client("c2")
    await settled(world, fails, other, shards=4)
    source.errors.append(AccessDeniedError("kinesis:GetRecords", "orders"))
    # User code gets the error, but doesn't leave the client's block.
    with pytest.raises(AccessDeniedError):
        await fails.task
    await world.until(lambda: len(other.held) == 4, seconds=10)
    assert world.members()["c1"].dead
    spread(world, *numbers(0, 8))
    await world.until(lambda: len(counts(other)) == 8)
    await asyncio.wait_for(fails.group.leave(), 1)
    await fails.stop()


async def test_a_record_being_handled_at_a_fatal_error_is_stored(world: World) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    fails = world.client("c1", source=lambda _: source, handle=Thinking(20))
    await world.until(lambda: fails.held)
    world.put("a", "b")
    await world.until(lambda: fails.texts == ["a"])
    source.errors.append(AccessDeniedError("kinesis:GetRecords", "orders"))
    other = world.client("c2")
    with pytest.raises(AccessDeniedError):
        await fails.task
    await world.until(lambda: other.texts == ["b"])
    assert fails.texts == ["a"]


async def test_a_fatal_error_is_raised_while_the_store_is_down(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    source = FaultySource(world.kinesis.source("orders"))
    store = FaultyStore(world.table)
    fails = world.client("c1", source=lambda _: source, store=store)
    await world.until(lambda: fails.held)
    store.down = True
    source.errors.append(AccessDeniedError("kinesis:GetRecords", "orders"))
    with pytest.raises(AccessDeniedError):
        await fails.task
    await asyncio.sleep(60)
    assert "when this client's lease runs out" in caplog.text
    beats = len(store.writes("beat"))
    store.down = False
    await asyncio.sleep(60)
    assert len(store.writes("beat")) == beats


# --- other streams ---


async def test_refresh_adds_and_removes_streams(world: World) -> None:
    world.kinesis.create_stream("payments", 2)
    client = world.client("c1")
    await world.until(lambda: client.held)
    await client.run(client.group.refresh(["orders", "payments"]))
    spread(world, "a", stream="payments")
    await world.until(lambda: "a" in client.texts)
    await client.run(client.group.refresh("payments"))
    await world.until(lambda: len(client.held) == 2)
    assert world.shard_rows("orders")[P].owner == ""
    world.put("b")
    await asyncio.sleep(60)
    assert client.texts == ["a"]
    await client.run(client.group.refresh(["orders", "payments"]))
    await world.until(lambda: client.texts == ["a", "b"])


class SlowSource(FaultySource):
    """A source that takes two seconds for each answer."""

    async def describe(self) -> StreamInfo:
        """Return the stream."""
        await asyncio.sleep(2)
        return await super().describe()

    async def get_records(
        self, iterator: str, limit: int, room: Reservation | None = None
    ) -> Page:
        """Return a page."""
        await asyncio.sleep(2)
        return await super().get_records(iterator, limit, room)


@pytest.mark.parametrize("seconds", range(4))
async def test_a_stream_may_be_deleted_as_soon_as_it_isnt_consumed_any_more(
    world: World, seconds: int
) -> None:
    world.kinesis.create_stream("payments", 2)

    def slow(name: str) -> FaultySource:
        return SlowSource(world.kinesis.source(name))

    client = world.client(
        "c1", "orders", "payments", source=slow, listing_interval_seconds=3
    )
    await world.until(lambda: len(client.held) == 3)
    await asyncio.sleep(10 + seconds)
    await client.run(client.group.refresh("orders"))
    world.kinesis.delete_stream("payments")
    world.put("a")
    await world.until(lambda: client.texts == ["a"])
    await asyncio.sleep(60)
    assert not client.task.done()
    assert len(client.held) == 1


# --- what ends a client ---


def made_anew(world: World) -> None:
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")


async def test_a_new_client_claims_no_shard_of_a_recreated_stream(world: World) -> None:
    first = world.client("c1")
    await world.until(lambda: first.held)
    await first.stop()
    await asyncio.sleep(1)
    made_anew(world)
    world.put("of the new stream")
    others = [world.client(name) for name in ("c2", "c3")]
    await asyncio.wait([client.task for client in others], timeout=60)
    for client in others:
        assert isinstance(client.task.exception(), StreamRecreatedError)
        assert client.texts == []
    (row,) = world.shard_rows().values()
    assert row.epoch == 1


def emptied(world: World) -> None:
    world.table.create_table("table-2")


def deleted(world: World) -> None:
    world.table.delete_table()


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (made_anew, StreamRecreatedError),
        (emptied, StateStoreRecreatedError),
        (deleted, StateStoreMissingError),
    ],
)
async def test_a_fatal_error_ends_the_iteration_with_its_reason(
    world: World, happens: Any, error: type[Exception]
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)
    await asyncio.sleep(1)
    happens(world)
    await asyncio.wait([client.task], timeout=60)
    assert isinstance(client.task.exception(), error)
    try:
        await client.stop()
    except error:
        pass
    assert client.held == [] or error is StateStoreMissingError
