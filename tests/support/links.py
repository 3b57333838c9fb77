"""Simulate a slow link to Kinesis, shared by readers with one memory budget."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.errors import SlowAnswerError, SourceUnavailableError
from tests.support.faulty import FaultySource
from tests.support.world import hold, shard_row

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.streams import Start
    from kinesumer.ports import Reservation
    from kinesumer.testing.memory import MemorySource
    from tests.support.world import World

ANSWER_SECONDS = 30.0
CHUNK_BYTES = 128 * 1024


class Link:
    """A link whose bandwidth all answers share evenly."""

    def __init__(self, world: World, bytes_per_second: float) -> None:
        self.clock = world.clock
        self.rate = bytes_per_second
        self.is_cut = False
        self.late = 0  # the number of answers that took too long
        self.under_way = 0  # bytes of answers that have begun to arrive
        self.most_under_way = 0
        self._free_at = 0.0

    async def carry(self, size: int) -> None:
        """Wait until the link has carried these bytes. Raises SlowAnswerError."""
        self.under_way += size
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                for at in range(0, size, CHUNK_BYTES):
                    piece = min(CHUNK_BYTES, size - at)
                    now = self.clock.now()
                    self._free_at = max(self._free_at, now) + piece / self.rate
                    await asyncio.sleep(self._free_at - now)
        except TimeoutError:
            self.late += 1
            raise SlowAnswerError("timed out") from None
        finally:
            self.under_way -= size


class LinkedSource(FaultySource):
    """A stream's source that is read over a link."""

    def __init__(self, source: MemorySource, link: Link) -> None:
        super().__init__(source)
        self.link = link

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        await self._reach()
        return await super().get_iterator(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Wait for memory, let the link carry a page, and return the page."""
        assert reservation is not None
        await self._reach()
        page = await super().get_records(iterator, limit, reservation)
        size = sum(160 + 4 * len(record.data) // 3 for record in page.records)
        if reservation.covers(size):
            reservation.shrink(size)
        else:
            await reservation.grow(size)
        await self.link.carry(size)
        return page._replace(wire_bytes=size)

    async def _reach(self) -> None:
        await asyncio.sleep(0.02)
        if self.link.is_cut:
            raise SourceUnavailableError("no route")


class Crowd:
    """Readers of all shards of a stream in one client, with fast user code."""

    def __init__(
        self, world: World, shards: int, rate: float, budget: int = 64 << 20
    ) -> None:
        self.world, self.budget = world, budget
        self.name = f"stream-{shards}"
        world.kinesis.create_stream(self.name, shards)
        self.link = Link(world, rate)
        self.source = LinkedSource(world.kinesis.source(self.name), self.link)
        self.stream = world.open(self.source)
        self.buffer = PrefetchBuffer(budget)
        self.most_used = 0
        self.received: Counter[str] = Counter()  # the number of user records by shard
        self.bytes = 0
        # The longest time in which no read of the stream succeeded.
        self.failed_seconds = 0.0
        context = world.context(buffer_bytes=budget)
        self.owned_shards: list[OwnedShard] = []
        self.tasks = [world.loop.create_task(self._take())]
        for shard in self.source.source.list_shards_now():
            row = shard_row(shard.shard_id)
            owned = hold(row._replace(key=row.key._replace(stream_arn=self.arn)))
            self.owned_shards.append(owned)
            reader = ShardReader(context, self.stream, owned, self.buffer)
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

    def look(self) -> None:
        """Record the peak of the memory used, and the longest time of failed reads."""
        self.most_used = max(self.most_used, self.buffer.used)
        assert self.buffer.used <= self.budget + FULL_PAGE_BYTES
        assert self.link.under_way <= self.buffer.used
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
