"""Simulate a slow link to Kinesis, shared by readers with one memory budget."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.errors import SlowAnswerError
from kinesumer.model.records import Page
from kinesumer.testing.memory import MemorySource
from kinesumer.testing.simulation.machine import SharedLink
from tests.support.faulty import FaultySource
from tests.support.world import World, hold, shard_row

T = TypeVar("T")

LATENCY_SECONDS = 0.02


class LinkedSource(FaultySource):
    """A stream's source that is read over a link."""

    def __init__(self, source: MemorySource, link: SharedLink) -> None:
        super().__init__(source)
        self.link = link
        self.late = 0  # the number of answers that took too long

    async def call(self, act: Callable[[], T]) -> T:
        await asyncio.sleep(LATENCY_SECONDS)
        return await super().call(act)

    async def arrival(self, page: Page) -> None:
        try:
            await self.link.arrival(page.wire_bytes)
        except SlowAnswerError:
            self.late += 1
            raise


class Crowd:
    """Readers of all shards of a stream in one client, with fast user code."""

    def __init__(
        self, world: World, shards: int, rate: float, budget: int = 64 << 20
    ) -> None:
        self.world, self.budget = world, budget
        self.name = f"stream-{shards}"
        world.kinesis.create_stream(self.name, shards)
        self.link = SharedLink(world.loop, rate)
        self.source = LinkedSource(world.kinesis.source(self.name), self.link)
        self.stream = world.open(self.source)
        self.buffer = PrefetchBuffer(budget)
        self.most_used = self.most_under_way = 0
        self.received: Counter[str] = Counter()  # the number of user records by shard
        self.bytes = 0
        # The longest time in which no read of the stream succeeded.
        self.failed_seconds = 0.0
        context = world.context(buffer_bytes=budget)
        self.owned_shards: list[OwnedShard] = []
        self.tasks = [world.loop.create_task(self._take())]
        for shard in self.source.list_shards_now():
            row = shard_row(shard.shard_id)
            owned = hold(row._replace(key=row.key._replace(stream_arn=self.arn)))
            self.owned_shards.append(owned)
            reader = ShardReader(ReadPlace(context, self.stream, owned, self.buffer))
            owned.task = world.loop.create_task(reader.run())
            self.tasks.append(owned.task)

    @property
    def arn(self) -> str:
        return self.stream.arn

    def put(self, size: int, count: int) -> None:
        """Append records to every shard. They share their data."""
        data = b"x" * size
        for shard in self.world.kinesis.stream(self.name).open:
            for _ in range(count):
                self.world.kinesis.put(
                    self.name, data, explicit_hash_key=shard.shard.first_hash
                )

    async def until(self, records: int, seconds: float) -> None:
        """Wait until this number of records of every shard was received."""
        async with asyncio.timeout(seconds):
            while (
                min(self.received[h.key.shard_id] for h in self.owned_shards) < records
            ):
                self.look()
                await asyncio.sleep(0.05)
        self.look()

    async def end(self) -> None:
        """Cancel the readers and user code, and wait for their ends."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def look(self) -> None:
        """Record the peaks of memory and answers, and the longest failure of reads."""
        self.most_used = max(self.most_used, self.buffer.used)
        assert self.buffer.used <= self.budget + FULL_PAGE_BYTES
        self.most_under_way = max(self.most_under_way, self.link.bytes_in_flight)
        assert self.link.bytes_in_flight <= self.buffer.used
        if self.stream.failing is not None:
            since, until, *_ = self.stream.failing
            self.failed_seconds = max(self.failed_seconds, until - since)

    async def _take(self) -> None:
        while True:
            batch = await self.buffer.get()
            if batch is None:
                continue
            self.look()
            self.received[batch.owned.key.shard_id] += len(batch)
            self.bytes += sum(len(record.data) for record in batch.records)
            progress = batch.owned.progress
            progress.deliver(batch.records, batch.end)
            progress.done_through(progress.delivered)
            if (position := batch.owned.position) is not None:
                batch.owned.stored(position)
            self.buffer.give_back(batch.owned, batch.size)
