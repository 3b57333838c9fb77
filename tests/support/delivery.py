"""Run a delivery to tasks or to a thread, with simulated user code and batches."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kinesumer.blocking.delivery import Records as BlockingRecords
from kinesumer.blocking.delivery import ThreadDelivery
from kinesumer.blocking.portal import LoopThread
from kinesumer.consuming import batch_builder
from kinesumer.consuming.delivery import RecordDelivery, Records
from kinesumer.consuming.delivery_protocol import EngineParts
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch, PrefetchBuffer
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.core.congestion import FULL_PAGE_BYTES
from kinesumer.decoding.decoders import OnDecodeError, read_policy
from kinesumer.model.batches import Batch
from kinesumer.model.positions import Position
from kinesumer.model.records import Record, Source, memory_size
from kinesumer.telemetry.api import Telemetry
from tests.support.clock import StillClock
from tests.support.faulty import FaultySource
from tests.support.world import World, batch_of, hold, shard_row

BUDGET = 4 * FULL_PAGE_BYTES


def deliver(
    world: World, *numbers: int, auto: bool = True, **decoding: Any
) -> tuple[Desk, OwnedShard]:
    """Return a delivery with a batch of these records, and the shard of the batch."""
    desk, owned = Desk(world, auto=auto, **decoding), hold()
    desk.put(owned, *numbers)
    return desk, owned


class CountingTelemetry(Telemetry):
    """Keeps the counters."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def count(
        self, name: str, stream_arn: str = "", amount: int = 1, **details: str
    ) -> None:
        self.counted[name] += amount


class Desk:
    """The RecordDelivery of one client, and its records."""

    def __init__(
        self,
        world: World,
        *,
        auto: bool = True,
        decode: Any = None,
        on_decode_error: OnDecodeError = "raise",
    ) -> None:
        self.world = world
        self.buffer = PrefetchBuffer(1 << 20)
        clock, policy = world.clock, read_policy(decode, on_decode_error, world.clock)
        self.delivery = RecordDelivery(clock, acks_by_asking=auto, policy=policy)
        self.owned: dict[Source | None, OwnedShard] = {}
        self.telemetry = CountingTelemetry()
        self.delivery.connect(EngineParts(self.buffer, lambda: None, self.telemetry))
        self.records: Records[Any] = Records(self.delivery, self._start)
        self.starts = 0

    async def _start(self) -> None:
        self.starts += 1

    def put(self, owned: OwnedShard, *numbers: int) -> FetchedBatch:
        self.owned[owned.source] = owned
        batch = batch_of(owned, *numbers)
        self.buffer.used += batch.size
        self.buffer.put(batch)
        return batch

    async def next(self) -> str:
        """Take a record, and return its sequence number."""
        return (await anext(self.records)).sequence_number

    async def nothing_for(self, seconds: float) -> bool:
        """Ask for a record. Return whether none has arrived after some time."""
        try:
            async with asyncio.timeout(seconds):
                await anext(self.records)
        except TimeoutError:
            return True
        return False

    def busy_since(self) -> float | None:
        return self.delivery.machine.busy_since

    def done(self, owned: OwnedShard) -> Position | None:
        """Return what a commit would store now."""
        self.delivery.sync_progress()
        return owned.position


def numbers(batch: Batch) -> list[int]:
    return [int(record.sequence_number) for record in batch.records]


def block(world: World, seconds: float) -> None:
    """Let time pass as if code blocked the event loop."""
    world.loop.real += seconds


def refuse_memory(
    monkeypatch: pytest.MonkeyPatch, times: int, *, after: int = 0
) -> None:
    """Let the system refuse the memory for batches, ``after`` some of them."""
    answers: list[MemoryError | None] = [MemoryError() for _ in range(times)]
    answers += [None] * after

    def size(records: list[Record]) -> int:
        if answers and (error := answers.pop()) is not None:
            raise error
        return memory_size(records)

    monkeypatch.setattr(batch_builder, "memory_size", size)


def read_shard(world: World, **options: Any) -> ReaderDesk:
    """Return a running reader of a stream's only shard."""
    desk = ReaderDesk(world, **options)
    desk.start()
    return desk


class ReaderDesk:
    """A reader of the only shard of a stream, and the consumer of its batches."""

    def __init__(
        self,
        world: World,
        *,
        max_uncommitted_records: int = 100_000,
        pace: float = 0.2,
        max_records_per_read: int = 10_000,
        source: FaultySource | None = None,
        telemetry: Telemetry | None = None,
        **row: Any,
    ) -> None:
        self.world = world
        self.source = source or FaultySource(world.kinesis.source("orders"))
        self.stream = world.open(self.source, min_read_interval_seconds=pace)
        self.owned = hold(shard_row(**row), max_uncommitted_records)
        self.buffer = PrefetchBuffer(BUDGET)
        self.batches: list[FetchedBatch] = []
        context = world.context(
            telemetry=telemetry,
            max_uncommitted_records=max_uncommitted_records,
            max_records_per_read=max_records_per_read,
        )
        self.context, self.incidents = context, context.incidents
        self.reader = ShardReader(
            ReadPlace(context, self.stream, self.owned, self.buffer)
        )

    def start(self) -> None:
        self.task = self.world.loop.create_task(self.reader.run())
        self.owned.task = self.task
        self.taking = self.world.loop.create_task(self._take())

    async def _take(self) -> None:
        while True:
            batch = await self.buffer.get()
            if batch is not None:
                self.batches.append(batch)
                self.owned.progress.deliver(batch.records, batch.end)

    def commit(self, count: int) -> None:
        """Store the first records as done."""
        self.owned.progress.done_through(count)
        position = self.owned.position
        assert position is not None
        self.owned.stored(position)

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def texts(self) -> list[str]:
        return [record.data.decode() for record in self.records]

    async def read(self, count: int, seconds: float = 60.0) -> list[str]:
        await self.world.until(lambda: len(self.records) >= count, seconds)
        return self.texts


class ThreadDesk:
    """Delivers the batches of a test to a thread, as a client without asyncio does.

    Only tests move the clock, so no turn ends by itself, however slow a test is.
    """

    def __init__(
        self,
        decode: Any = None,
        on_decode_error: OnDecodeError = "raise",
        *,
        acks_by_asking: bool = True,
    ) -> None:
        self.acked: list[str] = []
        self.loop_thread = LoopThread(self, lambda: None)
        self.clock = StillClock(1.0)
        self.delivery = ThreadDelivery(
            self.loop_thread,
            self.clock,
            acks_by_asking=acks_by_asking,
            ack=self._ack,
            policy=read_policy(decode, on_decode_error, self.clock),
        )
        self.buffer = PrefetchBuffer(1 << 20)
        self.records: BlockingRecords[Any] = BlockingRecords(self.delivery, self.start)
        self.telemetry = CountingTelemetry()
        self.crossings = 0

    def _ack(self, done: Record[Any] | Batch[Any]) -> None:
        assert isinstance(done, Record)
        self.acked.append(done.sequence_number)

    async def __aenter__(self) -> None:
        call = self.loop_thread.call

        def counted(*arguments: Any) -> Any:
            self.crossings += 1
            return call(*arguments)

        self.loop_thread.call = counted  # type: ignore[method-assign,assignment]

    async def __aexit__(self, *_: object) -> None:
        self.delivery.close()

    async def start(self) -> None:
        self.delivery.connect(EngineParts(self.buffer, lambda: None, self.telemetry))

    def on_loop(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self.loop_thread.call(call)

    def put(self, owned: OwnedShard, *numbers: int) -> None:
        batch = batch_of(owned, *numbers)
        self.on_loop(lambda: self.buffer.put(batch))

    def done(self, owned: OwnedShard) -> int:
        self.on_loop(self.delivery.sync_progress)
        return owned.progress.done
