"""What tests of several whole clients count, and how they spread records."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kinesumer.model.streams import HASH_KEYS

if TYPE_CHECKING:
    from tests.support.world import Client, World


def spread(world: World, *texts: str, stream: str = "orders") -> None:
    """Append records to all parts of the hash space in turn."""
    for index, text in enumerate(texts):
        hash_key = (index * HASH_KEYS // 8) % HASH_KEYS
        world.put(text, stream=stream, hash_key=hash_key)


def counts(*clients: Client) -> Counter[str]:
    return Counter(text for client in clients for text in client.texts)


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


async def settled(world: World, *clients: Client, shards: int) -> None:
    """Wait until every shard is held, by clients with even shares."""

    def even() -> bool:
        sizes = [len(client.held) for client in clients]
        return sum(sizes) == shards and max(sizes) - min(sizes) <= 1

    await world.until(even)
