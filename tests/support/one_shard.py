"""Consume a stream of one shard in memory, and look at the row of this shard."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from kinesumer import Kinesumer
from kinesumer.consuming.delivery import Records
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import Start
from tests.support.world import SHARD, World

OLDEST = Start.TRIM_HORIZON


def shard(world: World) -> ShardRow:
    """Return the row of the stream's first shard."""
    return world.shard_rows()[SHARD]


def place(world: World, index: int) -> Position:
    """Return the position of a record of the first shard."""
    log = world.kinesis.stream("orders").shards[SHARD].log
    return Position(log[index].sequence_number)


# What each client's first call of consume() returned.
_records: WeakKeyDictionary[Kinesumer, Records] = WeakKeyDictionary()


async def consume(client: Kinesumer, count: int, streams: Any = "orders") -> list[str]:
    """Consume some records, and break out of the loop at the last one."""
    seen: list[str] = []
    if client not in _records:
        _records[client] = client.consume(streams, start=OLDEST)
    async for record in _records[client]:
        seen.append(record.data.decode())
        if len(seen) == count:
            break
    return seen
