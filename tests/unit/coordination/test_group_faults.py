"""Whole clients in outages, with other streams, and at what they can't survive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kinesumer.coordination.events import Failed
from kinesumer.errors import (
    AccessDeniedError,
    StateStoreMissingError,
    StateStoreRecreatedError,
    StreamRecreatedError,
)
from kinesumer.model.streams import Start
from tests.support.clients import counts, numbers, settled, spread
from tests.support.world import FaultySource, FaultyStore, World, in_virtual_time

if TYPE_CHECKING:
    from kinesumer.model.records import Page
    from kinesumer.model.streams import StreamInfo
    from kinesumer.ports import Reservation

P = "shardId-000000000000"


# --- faults that come together ---


@in_virtual_time
async def test_a_fault_that_comes_while_another_ends_the_client_is_no_news(
    world: World,
) -> None:
    client = world.client("c1")
    await world.until(lambda: client.held)

    async def fail() -> None:
        raise StateStoreMissingError("the first")

    first = client.group._tasks.create_task(fail())
    second = Failed(StateStoreMissingError("the second"))
    first.add_done_callback(lambda _: client.group._notify(second))
    with pytest.raises(StateStoreMissingError, match="the first"):
        await client.task


@in_virtual_time
async def test_shards_of_who_met_a_fatal_fault_go_to_others_though_it_stays(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    sources: list[FaultySource] = []

    def denied(name: str) -> FaultySource:
        sources.append(FaultySource(world.kinesis.source(name)))
        return sources[-1]

    fails = world.client("c1", source=denied)
    other = world.client("c2")
    await settled(world, fails, other, shards=4)
    sources[0].errors.append(AccessDeniedError("kinesis:GetRecords", "orders"))
    # Its user code catches that, and doesn't leave the block.
    with pytest.raises(AccessDeniedError):
        await fails.task
    await world.until(lambda: len(other.held) == 4, seconds=10)
    assert world.members()["c1"].dead
    spread(world, *numbers(0, 8))
    await world.until(lambda: len(counts(other)) == 8)
    await asyncio.wait_for(fails.group.leave(), 1)
    await fails.stop()


@in_virtual_time
async def test_what_is_in_hand_when_a_fatal_fault_comes_is_finished_and_stored(
    world: World,
) -> None:
    async def works(_: object) -> None:
        await asyncio.sleep(20)

    source = FaultySource(world.kinesis.source("orders"))
    fails = world.client("c1", source=lambda _: source, handle=works)
    await world.until(lambda: fails.held)
    world.put("a", "b")
    await world.until(lambda: fails.texts == ["a"])
    source.errors.append(AccessDeniedError("kinesis:GetRecords", "orders"))
    other = world.client("c2")
    with pytest.raises(AccessDeniedError):
        await fails.task
    await world.until(lambda: other.texts == ["b"])
    assert fails.texts == ["a"]


@in_virtual_time
async def test_a_fatal_fault_is_told_though_the_store_is_down(
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


# --- outages ---


@in_virtual_time
async def test_an_outage_of_the_store_pauses_all_and_fences_nobody(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    stores = [FaultyStore(world.table) for _ in range(3)]
    clients = [world.client(f"c{n}", store=store) for n, store in enumerate(stores)]
    await settled(world, *clients, shards=4)
    sessions = {name: m.session for name, m in world.members().items()}
    for store in stores:
        store.down = True
    await asyncio.sleep(7)
    spread(world, *numbers(0, 80))
    await asyncio.sleep(60)
    assert counts(*clients) == {}
    for store in stores:
        store.down = False
    await world.until(lambda: len(counts(*clients)) == 80, seconds=10)
    await asyncio.sleep(60)
    assert {name: m.session for name, m in world.members().items()} == sessions
    assert set(counts(*clients).values()) == {1}


@in_virtual_time
async def test_who_cannot_read_kinesis_gives_its_shards_away_and_gets_them_back(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    sources: list[FaultySource] = []

    def cut_off(name: str) -> FaultySource:
        sources.append(FaultySource(world.kinesis.source(name)))
        return sources[-1]

    broken = world.client("c1", source=cut_off)
    others = [world.client(f"c{n}") for n in (2, 3)]
    await settled(world, broken, *others, shards=4)
    for source in sources:
        source.down = True
    spread(world, *numbers(0, 8))
    await world.until(lambda: len(counts(*others)) == 8, seconds=45)
    assert world.members()["c1"].state == "degraded"
    for source in sources:
        source.down = False
    await settled(world, broken, *others, shards=4)
    assert world.members()["c1"].state == "up"


@in_virtual_time
async def test_a_slow_handler_does_not_count_as_a_kinesis_out_of_reach(
    world: World,
) -> None:
    async def crawl(_: object) -> None:
        await asyncio.sleep(60)

    world.kinesis.create_stream("orders", 3)
    slow = world.client("c1", handle=crawl, max_uncommitted_records=2)
    others = [world.client(f"c{n}") for n in (2, 3)]
    await settled(world, slow, *others, shards=3)
    held = slow.held
    for _ in range(4):
        spread(world, *numbers(0, 8))
    for _ in range(100):
        await asyncio.sleep(2)
        assert world.members()["c1"].state == "up"
        assert slow.held == held


# --- other streams ---


@in_virtual_time
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
    """A way to a stream on which answers take seconds."""

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
@in_virtual_time
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


@in_virtual_time
async def test_clients_that_ask_for_different_streams_get_only_what_they_ask(
    world: World,
) -> None:
    world.kinesis.create_stream("orders", 4)
    world.kinesis.create_stream("payments", 4)
    old = world.client("c1", "orders")
    new = world.client("c2", "orders", "payments")
    await world.until(lambda: len(old.held) + len(new.held) == 8)
    await world.until(lambda: len(new.held) == 4)
    assert {h.source.stream for h in old.group.owned_shards()} == {"orders"}
    assert {h.source.stream for h in new.group.owned_shards()} == {"payments"}
    spread(world, *numbers(0, 8))
    spread(world, *numbers(8, 16), stream="payments")
    await world.until(lambda: len(counts(old, new)) == 16)


@in_virtual_time
async def test_latest_is_resolved_once_though_the_first_owner_dies_at_once(
    world: World,
) -> None:
    world.put("old")
    await asyncio.sleep(5)
    first = world.client("c1", start=Start.LATEST)
    await world.until(lambda: first.held)
    first.kill()
    await asyncio.sleep(5)
    world.put("new")
    await asyncio.sleep(60)
    second = world.client("c2", start=Start.LATEST)
    await world.until(lambda: second.seen)
    assert second.texts == ["new"]


@in_virtual_time
async def test_reshards_under_load_lose_and_repeat_nothing(world: World) -> None:
    world.kinesis.create_stream("orders", 4)
    clients = [world.client(f"c{n}") for n in range(2)]
    await settled(world, *clients, shards=4)
    for n in range(20):
        spread(world, *numbers(8 * n, 8 * n + 8))
        if n in (5, 9):
            parent = world.kinesis.stream("orders").open[n % 4]
            world.kinesis.split("orders", parent.shard.shard_id)
        if n == 12:
            low, high = world.kinesis.stream("orders").open[:2]
            world.kinesis.merge("orders", low.shard.shard_id, high.shard.shard_id)
        await asyncio.sleep(0.5)
    await world.until(lambda: len(counts(*clients)) == 160)
    assert set(counts(*clients).values()) == {1}
    assert sum(row.ended for row in world.shard_rows().values()) == 4


# --- what ends a client ---


def made_anew(world: World) -> None:
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders")


@in_virtual_time
async def test_of_a_stream_made_anew_no_client_delivers_anything(world: World) -> None:
    world.kinesis.create_stream("many", 8)
    clients = [world.client(name, "many") for name in ("c1", "c2", "c3")]
    await settled(world, *clients, shards=8)
    await asyncio.sleep(1)
    world.kinesis.delete_stream("many")
    world.kinesis.create_stream("many", 8)
    spread(world, *numbers(0, 80), stream="many")
    await asyncio.wait([client.task for client in clients], timeout=60)
    for client in clients:
        assert isinstance(client.task.exception(), StreamRecreatedError)
        assert client.texts == []


@in_virtual_time
async def test_a_client_that_finds_a_stream_made_anew_claims_nothing_of_it(
    world: World,
) -> None:
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
@in_virtual_time
async def test_what_cannot_go_on_ends_the_iteration_with_its_reason(
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
