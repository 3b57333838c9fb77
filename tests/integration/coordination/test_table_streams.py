"""Test that clients share the stream of a table through the life of its shards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from kinesumer.core.liveness import MAX_REQUEST_DELAY_SECONDS
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import Start, Stream
from kinesumer.wire import rows
from tests.support.toy_table import ARN, ToySource, ToyTable
from tests.support.world import APP, Client, World

CUSTOMERS = Stream(table="customers")


class Customers:
    """A table's stream in a world, beside the Kinesis stream "orders"."""

    def __init__(self, world: World, shards: int) -> None:
        self.world = world
        self.table = ToyTable(clock=world.clock)
        self.open = [self.table.open() for _ in range(shards)]
        self.produced: list[str] = []

    def client(self, name: str, *streams: Any, **options: Any) -> Client:
        """Start a client of the table, and of other streams."""

        def source(stream: str) -> Any:
            if stream == CUSTOMERS.name:
                return ToySource(self.table)
            return self.world.kinesis.source(stream)

        return self.world.client(name, CUSTOMERS, *streams, source=source, **options)

    def put(self, count: int = 1) -> None:
        """Put records into each open shard."""
        for shard in self.open:
            self.table.put(shard, count)
            records = self.table.shard(shard).records[-count:]
            self.produced += [record.sequence_number for record in records]

    def roll_over(self) -> None:
        """Close all shards, and open the next generation."""
        self.open = [self.table.roll_over(shard)[0] for shard in self.open]

    def rows(self) -> list[ShardRow]:
        """Return the shard rows of the stream."""
        partition = rows.shard_partition(APP, ARN)
        return [rows.read_shard(row) for row in self.world.table.rows(partition)]

    def counts(self, clients: Iterable[Client]) -> Counter[str]:
        """Return how often each record of the table was delivered."""
        return Counter(
            record.sequence_number
            for client in clients
            for record in client.seen
            if record.stream == CUSTOMERS.name
        )

    async def read(self, clients: list[Client]) -> None:
        """Wait until all records were delivered."""
        await self.world.until(
            lambda: self.counts(clients).keys() >= set(self.produced), 120.0
        )


async def test_ten_generations_are_read_once_with_a_join_and_a_leave(
    world: World,
) -> None:
    customers = Customers(world, shards=6)
    clients = [customers.client(name, "orders") for name in ("c1", "c2")]
    for generation in range(10):
        customers.put(3)
        world.put(f"order {generation}")
        await asyncio.sleep(30)
        customers.put(2)
        customers.roll_over()
        if generation == 3:
            clients.append(customers.client("c3", "orders"))
        if generation == 6:
            await clients[0].stop()
    customers.put(1)
    await customers.read(clients)
    assert set(customers.counts(clients).values()) == {1}
    orders = Counter(
        record.data for c in clients for record in c.seen if record.stream == "orders"
    )
    assert orders == {f"order {n}".encode(): 1 for n in range(10)}
    assert len(customers.rows()) == 6 * 11


async def test_a_killed_clients_shards_are_read_on_by_others(world: World) -> None:
    customers = Customers(world, shards=6)
    clients = [customers.client(name) for name in ("c1", "c2", "c3")]
    for generation in range(4):
        customers.put(3)
        await asyncio.sleep(20)
        customers.roll_over()
        if generation == 1:
            clients[0].kill()
    customers.put(1)
    await customers.read(clients)
    again = [number for number, n in customers.counts(clients).items() if n > 1]
    assert len(again) <= 2 * 2 * 3  # what the killed client had read of its shards


async def test_a_child_is_read_within_seconds_of_its_parents_end(world: World) -> None:
    customers = Customers(world, shards=8)
    clients = [customers.client(name) for name in ("c1", "c2", "c3", "c4")]
    customers.put()
    await customers.read(clients)
    await asyncio.sleep(120)
    for _ in range(5):
        customers.roll_over()
        customers.put()
        began = world.clock.now()
        await customers.read(clients)
        assert world.clock.now() - began < 5
        await asyncio.sleep(120)


@pytest.mark.parametrize("has_times", [True, False])
async def test_latest_begins_with_what_is_written_after_the_start(
    world: World, has_times: bool
) -> None:
    customers = Customers(world, shards=3)
    customers.table.has_times = has_times
    for _ in range(2):
        customers.put(5)
        await asyncio.sleep(10)
        customers.roll_over()
    customers.put(5)
    await asyncio.sleep(10)
    client = customers.client("c1", start=Start.LATEST)
    await asyncio.sleep(20)
    assert client.seen == []
    customers.produced.clear()
    customers.put(2)
    await customers.read([client])
    assert customers.counts([client]).keys() == set(customers.produced)


async def test_a_long_listing_keeps_to_five_calls_a_second_and_goes_on_if_refused(
    world: World,
) -> None:
    customers = Customers(world, shards=0)
    table = customers.table
    table.page_shards = 10
    shards = [table.open() for _ in range(1000)]
    source = ToySource(table)
    listing = asyncio.ensure_future(source.list_shards())
    await asyncio.sleep(10)
    assert 40 <= len(table.described) <= 51
    table.throttles = 3
    assert [shard.shard_id for shard in await listing] == shards
    assert len(table.described) == 103
    assert 20 < world.clock.now() < 30


async def test_the_rows_of_expired_shards_are_deleted(world: World) -> None:
    customers = Customers(world, shards=3)
    client = customers.client("c1")
    for _ in range(3):
        customers.put()
        await asyncio.sleep(20)
        customers.roll_over()
    await customers.read([client])
    del customers.table.shards[:6]
    await asyncio.sleep(MAX_REQUEST_DELAY_SECONDS + 300)
    assert len(customers.rows()) == 6
    customers.put()
    await customers.read([client])
    assert set(customers.counts([client]).values()) == {1}


async def test_a_disabled_stream_is_read_to_its_end(world: World) -> None:
    customers = Customers(world, shards=3)
    client = customers.client("c1")
    customers.put(2)
    await customers.read([client])
    customers.put(2)
    customers.table.disable()
    await customers.read([client])
    await world.until(lambda: all(row.ended for row in customers.rows()))
    await asyncio.sleep(300)
    assert all(row.ended for row in customers.rows())
    assert set(customers.counts([client]).values()) == {1}
