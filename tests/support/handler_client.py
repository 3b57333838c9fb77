"""Run a client with handlers in virtual or real time, with AWS replaced by memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

from kinesumer import Batch, Config, Kinesumer, Record
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.coordination.connections import Connections, Ports
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat import HeartbeatThread
from kinesumer.coordination.state_store import StoreThread
from kinesumer.dead_letters import DeadLetter
from kinesumer.handlers import RetryPolicy
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, Stream
from kinesumer.runtime.clock import SystemClock
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from tests.support.world import APP, Client, World

TERMS = (
    "batch",
    "concurrency",
    "dead_letter_limit",
    "dead_letters",
    "decode",
    "middleware",
    "on_failure",
    "retries",
    "traceparent",
)

ONCE = RetryPolicy(max_attempts=1)
BURY: dict[str, Any] = {"dead_letters": "file:unused"}


async def ignore(record: Record) -> None:
    """Handle every record by doing nothing."""


class Runner(Client):
    """Runs ``client.run()`` in the background, without AWS."""

    def __init__(
        self,
        world: World,
        handler: Any,
        client_id: str = "c1",
        *streams: str,
        **options: Any,
    ) -> None:
        self.letters = Letters()
        self._asked = {name: options.pop(name) for name in TERMS if name in options}
        if isinstance(self._asked.get("dead_letters"), str):
            self._asked["dead_letters"] = self.letters.put
        self._handler = handler
        super().__init__(world, client_id, streams or ("orders",), **options)

    @property
    def owned(self) -> OwnedShard:
        """The only shard that the client owns."""
        [owned] = self.group.owned_shards()
        return owned

    async def close(self) -> None:
        """Leave the client's block while ``run()`` is active."""
        await self.run(self.client.__aexit__(None, None, None))

    async def leave(self) -> None:
        """Leave the group in good order, and then the client's block."""
        await self.run(self.client.leave())
        await self.task
        await self.close()

    async def _consume(self) -> None:
        await self.client.__aenter__()
        await self.client.run(
            self._streams, self._handler, start=self._start, **self._asked
        )


class Letters:
    """A target of dead letters that can be told to fail."""

    def __init__(self) -> None:
        self.stored: list[DeadLetter] = []
        self.errors: list[Exception] = []
        """The errors that the next calls of ``put`` raise, one each."""
        self.tries = 0

    @property
    def texts(self) -> list[str]:
        """The data of the stored letters, as text."""
        return [letter.data.decode() for letter in self.stored]

    async def put(self, letter: DeadLetter) -> None:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        self.stored.append(letter)


def committed(world: World, shard_id: str = "shardId-000000000000") -> int:
    """Return how many records of a shard its checkpoint covers."""
    position = world.shard_rows()[shard_id].position
    if position is None:
        return 0
    log = world.kinesis.stream("orders").shards[shard_id].log
    places = [Position(record.sequence_number) for record in log]
    return places.index(position) + 1


class RealTimeClient(Kinesumer):
    """Runs ``run()`` in real time, with AWS replaced by memory."""

    def __init__(self, handler: Any, *, shards: int = 1, **options: Any) -> None:
        self._asked = {name: options.pop(name) for name in TERMS if name in options}
        self.letters = Letters()
        if "dead_letters" in self._asked:
            self._asked["dead_letters"] = self.letters.put
        clock, ids = SystemClock(), map(str, range(1000))
        self.memory, self.kinesis = MemoryStore(clock), MemoryKinesis(clock)
        self.kinesis.create_stream("orders", shards)
        times = {
            "heartbeat_interval_seconds": 0.1,
            "lease_duration_seconds": 5.0,
            "leader_interval_seconds": 0.05,
            "rebalance_delay_seconds": 0.0,
        }
        ports = Ports(
            clock=clock,
            random=Random(1),
            new_id=lambda: next(ids),
            connect=self._connect,
        )
        config = Config(**{**times, **options})
        super().__init__(APP, client_id="c1", config=config, _ports=ports)
        self._handler = handler

    @property
    def group(self) -> GroupConsumer:
        assert self._lifecycle.group is not None
        return self._lifecycle.group

    def put(self, *texts: str) -> None:
        for text in texts:
            self.kinesis.put("orders", text.encode(), text, 0)

    async def run_all(self) -> None:
        """Run until ``close``, in the client's block."""
        async with asyncio.timeout(20), self:
            await self.handle_all()

    async def handle_all(self) -> None:
        """Run until ``close``."""
        self._loop = asyncio.get_running_loop()
        start = Start.TRIM_HORIZON
        await self.run("orders", self._handler, start=start, **self._asked)

    def close(self) -> None:
        """End the run, from any thread."""
        self._loop.call_soon_threadsafe(self.group.delivery.close)

    @asynccontextmanager
    async def _connect(self, *_: object) -> AsyncIterator[Connections]:
        thread = StoreThread(self._open_store)
        try:
            yield Connections(
                store=await thread.start(),
                open_source=self._open_source,
                heartbeat=partial(HeartbeatThread, thread=thread),
            )
        finally:
            await thread.stop()

    async def _open_source(self, stream: Stream) -> Any:
        return self.kinesis.source(stream.name)

    @asynccontextmanager
    async def _open_store(self) -> AsyncIterator[MemoryStore]:
        yield self.memory


class Failing:
    """A handler that fails at some records, for a number of times or for ever."""

    def __init__(self, *bad: str, times: float = float("inf")) -> None:
        self.left = dict.fromkeys(bad, times)
        self.calls: list[list[str]] = []
        self.at: list[float] = []
        self.error: type[Exception] = ValueError

    def take(self, records: Sequence[Record]) -> None:
        """Note the call, and raise the error if one of the records must still fail."""
        texts = [record.data.decode() for record in records]
        self.calls.append(texts)
        self.at.append(asyncio.get_running_loop().time())
        for text in texts:
            if self.left.get(text, 0) > 0:
                self.left[text] -= 1
                raise self.error(text)

    async def record(self, record: Record) -> None:
        """Take a record."""
        self.take([record])

    async def batch(self, batch: Batch) -> None:
        """Take a batch."""
        self.take(batch.records)
