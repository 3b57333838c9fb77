"""Run complete clients: one on a single shard, or several that share the shards."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from weakref import WeakKeyDictionary

from kinesumer import Kinesumer
from kinesumer.consuming.delivery import Records
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, Start
from tests.support.world import SHARD, Client, World


class Thinking:
    """A handler that sleeps at each record."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def __call__(self, _: object) -> None:
        await asyncio.sleep(self.seconds)


def spread(world: World, *texts: str, stream: str = "orders") -> None:
    """Append records, which go to eight evenly spaced hash keys in turn."""
    for index, text in enumerate(texts):
        hash_key = (index * HASH_KEYS // 8) % HASH_KEYS
        world.put(text, stream=stream, hash_key=hash_key)


def counts(*clients: Client) -> Counter[str]:
    return Counter(text for client in clients for text in client.texts)


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


async def settled(world: World, *clients: Client, shards: int) -> None:
    """Wait until the clients own all shards, with equal numbers of them."""

    def even() -> bool:
        sizes = [len(client.held) for client in clients]
        return sum(sizes) == shards and max(sizes) - min(sizes) <= 1

    await world.until(even)


async def sharing(world: World, *client_ids: str, shards: int = 8) -> list[Client]:
    """Return clients that share the shards of a new stream "orders"."""
    world.kinesis.create_stream("orders", shards)
    clients = [world.client(client_id) for client_id in client_ids]
    await settled(world, *clients, shards=shards)
    return clients


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
