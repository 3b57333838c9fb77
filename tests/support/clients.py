"""Run complete clients: alone, sharing shards, with callbacks, or dying at records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from kinesumer import AssignedShard, Kinesumer, Record
from kinesumer.consuming.delivery import Records
from kinesumer.model.owned import RevokeReason
from kinesumer.model.positions import Position
from kinesumer.model.rows import Row, ShardRow
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.ports import Write
from kinesumer.wire import writes
from tests.support.handler_client import Runner
from tests.support.world import APP, SHARD, Client, InMemory, World


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


async def reader(world: World, texts: str, **options: Any) -> Client:
    """Return a client "c1" that has read one record for each letter of ``texts``."""
    world.put(*texts)
    client = world.client("c1", **options)
    await world.until(lambda: client.texts == [*texts])
    return client


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


P = "shardId-000000000000"
RESTART_SECONDS = 3.0


def numbered(count: int) -> list[str]:
    """Return the texts of harmless records."""
    return [f"r{number}" for number in range(count)]


class DyingFleet:
    """Three clients, which a supervisor starts again after each death."""

    def __init__(
        self, world: World, *, runs: Mapping[str, Any] | None = None, **config: Any
    ) -> None:
        """``runs`` are options of ``run()``. Without them, clients iterate."""
        self.world = world
        self.deadly: set[str] = set()  # the texts of records that kill
        self.delay_seconds = 0.0  # how long user code takes for each record
        self.deaths: list[str] = []  # the record at each death
        self.seen: list[str] = []
        self.clients: dict[str, Client | Runner] = {}
        self.letters: list[str] = []
        self.most_deaths = 0  # the highest number that a row has counted
        self.notes = 0  # writes that name a record
        self._runs, self._config = runs, config
        world.table.on_write.append(self._watch)
        for number in range(3):
            self.start(f"c{number}")

    def start(self, client_id: str) -> None:
        async def handle(record: Record) -> None:
            await self.handle(client_id, record)

        if self._runs is None:
            self.clients[client_id] = self.world.client(
                client_id, handle=handle, **self._config
            )
            return
        options = {**self._runs, **self._config}
        if "dead_letters" in options:
            options["dead_letters"] = self._put
        self.clients[client_id] = Runner(self.world, handle, client_id, **options)

    async def _put(self, letter: Any) -> None:
        self.letters.append(letter.data.decode())

    async def handle(self, client_id: str, record: Record) -> None:
        text = record.data.decode()
        await asyncio.sleep(self.delay_seconds)
        if text in self.deadly:
            self.deaths.append(text)
            self.kill(client_id)
            await asyncio.Event().wait()
        self.seen.append(text)

    def kill(self, client_id: str) -> None:
        """Kill a client, and start it again later."""
        machine = self.clients[client_id].machine
        if machine.alive:
            machine.kill()
            loop = self.world.loop
            loop.at_real(loop.real + RESTART_SECONDS, self.start, client_id)

    def _watch(self, write: Write, _before: Row | None, after: Row | None) -> None:
        if after is not None and "deaths" in after:
            self.most_deaths = max(self.most_deaths, int(str(after["deaths"])))
        self.notes += "tried" in write.set

    def row(self, shard_id: str = P) -> ShardRow:
        return self.world.shard_rows()[shard_id]

    async def until_stopped(self) -> None:
        """Wait until a record is named, and then long enough for more deaths."""
        rows = self.world.shard_rows
        named = lambda: P in rows() and rows()[P].poison  # noqa: E731
        await self.world.until(named, 900)
        await asyncio.sleep(120)

    async def until_done(self, *texts: str, seconds: float = 900) -> None:
        await self.world.until(lambda: {*texts} <= {*self.seen}, seconds)
