"""Consume with callbacks, and note their calls and the records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kinesumer import AssignedShard, Record
from kinesumer.model.owned import RevokeReason
from kinesumer.ports import Write
from kinesumer.wire import writes
from tests.support.clients import OLDEST
from tests.support.world import APP, InMemory, World

Way = Callable[..., Coroutine[object, object, None]]


class CallbackUser:
    """User code of a client that notes records and calls of its callbacks."""

    def __init__(self, world: World, client_id: str = "c1", **config: Any) -> None:
        self.client = InMemory(world, client_id, **config)
        self.world = world
        self.events: list[str] = []
        self.shards: list[AssignedShard] = []
        self.kept: list[Record] = []
        # What the callbacks and the loop do besides.
        self.on_assigned: Callable[[AssignedShard], Awaitable[None]] = nothing
        self.on_revoked: Callable[[AssignedShard], Awaitable[None]] = nothing
        self.on_record: Callable[[Record], Awaitable[None]] = nothing

    async def assigned(self, shard: AssignedShard) -> None:
        self.shards.append(shard)
        self.events.append(f"assign {_number(shard.shard_id)}")
        await self.on_assigned(shard)
        self.events.append(f"assigned {_number(shard.shard_id)}")

    async def revoked(self, shard: AssignedShard, reason: RevokeReason) -> None:
        self.events.append(f"revoke {_number(shard.shard_id)} {reason}")
        await self.on_revoked(shard)
        self.events.append(f"revoked {_number(shard.shard_id)}")

    async def handle(self, record: Record) -> None:
        self.events.append(record.data.decode())
        await self.on_record(record)

    async def consume(self, streams: Any = "orders") -> None:
        """Iterate until the client leaves, within the client's block."""
        async with self.client:
            async for record in self.client.consume(
                streams,
                start=OLDEST,
                on_assigned=self.assigned,
                on_revoked=self.revoked,
            ):
                await self.handle(record)

    async def run(self, streams: Any = "orders") -> None:
        """Call a handler until the client leaves, within the client's block."""

        async def handle(record: Record) -> None:
            await self.handle(record)

        async with self.client:
            await self.client.run(
                streams,
                handle,
                start=OLDEST,
                on_assigned=self.assigned,
                on_revoked=self.revoked,
            )

    @asynccontextmanager
    async def running(
        self, way: Way | None = None, streams: Any = "orders"
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Consume during the block, and leave at its end."""
        task = asyncio.create_task((way or CallbackUser.consume)(self, streams))
        yield task
        self.on_record = self.on_revoked = nothing
        await self.client.leave()
        await task

    async def keep(self, record: Record) -> None:
        self.kept.append(record)

    async def saw(self, event: str, seconds: float = 60.0) -> None:
        """Wait until an event was noted."""
        await self.world.until(lambda: event in self.events, seconds)


async def nothing(_: object) -> None: ...


async def fail(_: object) -> None:
    raise OSError("no disk")


def _number(shard_id: str) -> int:
    return int(shard_id.removeprefix("shardId-"))


WAYS = pytest.mark.parametrize("way", [CallbackUser.consume, CallbackUser.run])


def death(world: World) -> Write:
    """Return the write by which the client c1 leaves."""
    return writes.leave(APP, world.members()["c1"], "now")
