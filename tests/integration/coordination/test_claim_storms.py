"""Test many concurrent writes to a table that allows few write units a second."""

from __future__ import annotations

from typing import Any

from kinesumer.errors import StoreThrottledError
from kinesumer.model.streams import Stream
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.wire import rows
from tests.support.faulty import FaultyStore
from tests.support.world import APP, Client, World

UNITS_PER_SECOND = 150.0
SHARDS = 1000


class Way(FaultyStore):
    """One client's state store, which records accepted and throttled heartbeats."""

    def __init__(self, world: World) -> None:
        super().__init__(world.table)
        self.latency = 0.01
        self.clock = world.clock
        self.beat_at = [0.0]
        self.refused_beats = 0

    async def write(self, write: Write) -> WriteResult:
        is_beat = "beat" in write.set
        try:
            written = await super().write(write)
        except StoreThrottledError:
            self.refused_beats += is_beat
            raise
        if is_beat:
            self.beat_at.append(self.clock.now())
        return written

    @property
    def longest_without_a_beat(self) -> float:
        pairs = zip(self.beat_at[1:], self.beat_at[2:], strict=False)
        return max(after - before for before, after in pairs)


def start(
    world: World, *client_ids: str, **config: Any
) -> tuple[list[Client], list[Way]]:
    ways = [Way(world) for _ in client_ids]
    # Read rarely, since this test ignores the records.
    stream = Stream("big", min_read_interval_seconds=60.0)
    clients = [
        world.client(client_id, stream, store=way, **config)
        for client_id, way in zip(client_ids, ways, strict=True)
    ]
    return clients, ways


def held(clients: list[Client]) -> int:
    return sum(len(client.held) for client in clients)


async def test_claims_keep_to_what_the_table_takes(world: World) -> None:
    world.kinesis.create_stream("big", SHARDS)
    world.table.write_capacity = Bucket(UNITS_PER_SECOND)
    clients, ways = start(world, "c1", "c2", "c3")
    await world.until(lambda: any(way.writes("claim") for way in ways))
    began = world.clock.now()
    await world.until(lambda: held(clients) == SHARDS)
    assert world.clock.now() - began < 1.5 * SHARDS / UNITS_PER_SECOND
    assert sum(len(way.writes("claim")) for way in ways) < 1.3 * SHARDS
    assert max(way.longest_without_a_beat for way in ways) < 4
    assert not any(member.dead for member in world.members().values())


async def test_shard_sync_creates_rows_as_fast_as_the_table_takes(world: World) -> None:
    shards, units = 500, 50.0
    world.kinesis.create_stream("big", shards)
    world.table.write_capacity = Bucket(units)
    _, ways = start(world, "c1")
    partition = rows.shard_partition(APP, world.kinesis.stream("big").arn)
    await world.until(lambda: len(world.table.rows(partition)) == shards)
    assert world.clock.now() < 1.5 * shards / units
    created = [write for write in ways[0].sent if "last_hash" in write.set]
    assert len(created) < 1.3 * shards
    assert ways[0].longest_without_a_beat < 4
