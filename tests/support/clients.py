"""Run several complete clients, and wait until they share the shards."""

from __future__ import annotations

import asyncio
from collections import Counter

from kinesumer.model.streams import HASH_KEYS
from tests.support.world import Client, World


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
