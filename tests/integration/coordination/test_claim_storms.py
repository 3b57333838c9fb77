"""Test many concurrent writes to a table that allows few write units a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kinesumer.consuming.checkpointer import Checkpointer
from kinesumer.core.write_rate import COMMITS_PER_SECOND
from kinesumer.errors import StoreThrottledError
from kinesumer.model.positions import Position
from kinesumer.model.records import Record
from kinesumer.model.streams import HASH_KEYS, ShardKey, Stream
from kinesumer.ports import AllOf, Write
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.wire import rows, writes
from tests.support.checkpoints import FakeOwner
from tests.support.faulty import FaultyStore
from tests.support.world import APP, ARN, World, hold, shard_row

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.ports import WriteResult
    from tests.support.world import Client

ANY = AllOf()
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


async def test_releases_keep_to_what_the_table_takes(world: World) -> None:
    world.kinesis.create_stream("big", SHARDS)
    clients, ways = start(world, "c1", "c2")
    await world.until(lambda: held(clients) == SHARDS)
    world.table.write_capacity = Bucket(UNITS_PER_SECOND)
    await clients[0].stop()
    released = [write for write in ways[0].sent if "owner" in write.remove]
    assert len(released) < 1.3 * SHARDS / 2
    assert not any(row.owner_id == "c1" for row in world.shard_rows("big").values())
    assert ways[1].longest_without_a_beat < 4


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


# --- commits ---


async def own(world: World, number: int, shards: int) -> OwnedShard:
    """Store the row of one of many shards with an owner, and return the shard."""
    first = number * (HASH_KEYS // shards)
    key = ShardKey(ARN, f"shardId-{number:012}")
    row = shard_row()._replace(key=key, first_hash=first)
    await world.table.write(writes.create_shard(APP, row))
    owned = Write(writes.shard_row_key(APP, row), ANY, {"owner": row.owner})
    await world.table.write(owned)
    return hold(row)


async def work(owned_shards: list[OwnedShard]) -> None:
    """Finish a record of every shard again and again."""
    for count in range(1, 1000):
        for owned in owned_shards:
            owned.progress.deliver([Record(str(10_000 + count), b"x")])
            owned.progress.done_through(count)
        await asyncio.sleep(4)


async def test_more_active_shards_are_committed_less_often(world: World) -> None:
    # Simulate 3 of 12 clients. Each may use a twelfth of the limit.
    shards, clients, share = 1200, 3, 1 / 12
    owned_shards = [await own(world, number, shards) for number in range(shards)]
    tasks = [world.loop.create_task(work(owned_shards))]
    for client in range(clients):
        checkpointer = Checkpointer(
            world.context(f"c{client}", store=FaultyStore(world.table)),
            FakeOwner(owned_shards[client::clients], share=share),
        )
        tasks.append(world.loop.create_task(checkpointer.run()))
    await asyncio.sleep(20)
    before, seconds = world.table.usage.requests["write"], 20.0
    await asyncio.sleep(seconds)
    a_second = (world.table.usage.requests["write"] - before) / seconds
    for task in tasks:
        task.cancel()
    limit = clients * share * COMMITS_PER_SECOND
    assert 0.7 * limit < a_second <= 1.05 * limit
    positions = [row.position for row in world.shard_rows().values()]
    assert None not in positions
    assert Position("10001") < min(filter(None, positions))
