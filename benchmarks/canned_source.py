"""Run the engine over a source that decodes prepared GetRecords answers."""

from __future__ import annotations

import random
import time
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from benchmarks.pages import Layout, iterator, numbered
from kinesumer import Kinesumer
from kinesumer.model.records import Page
from kinesumer.model.streams import HASH_KEYS, Shard, Start, Stream, StreamInfo
from kinesumer.ports import Polled
from kinesumer.runtime.clock import SystemClock
from kinesumer.telemetry.otel import OpenTelemetry
from kinesumer.testing.memory import MemoryStore, memory_ports
from kinesumer.wire.records import decode_page

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from kinesumer.consuming.delivery import Records
    from kinesumer.coordination.connections import Ports
    from kinesumer.model.positions import Position
    from kinesumer.ports import Reservation

PAGES_PER_SHARD = 8
# The read rate of one shard is limited, but so many streams keep the CPU busy.
STREAMS = [f"stream-{number}" for number in range(200)]


class CannedSource(Polled):
    """A stream of two shards: the first one has some pages, the second one is empty."""

    def __init__(self, name: str, bodies: list[bytes]) -> None:
        self._arn = f"arn:aws:kinesis:us-east-1:123456789012:stream/{name}"
        self._bodies = bodies

    async def describe(self) -> StreamInfo:
        """Return an active stream."""
        return StreamInfo(self._arn, "ACTIVE", 1.7e9, now=time.time())

    async def list_shards(self) -> list[Shard]:
        """Return two shards."""
        half = HASH_KEYS // 2
        return [Shard("shard-0", 0, half - 1), Shard("shard-1", half, HASH_KEYS - 1)]

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once, since their number isn't limited."""
        return nullcontext()

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator at the beginning of the shard."""
        return iterator(0) if shard_id == "shard-0" else iterator(len(self._bodies))

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return the next page, decoded from its body."""
        number = int(iterator)
        if number >= len(self._bodies):
            return Page([], iterator, 0)
        return decode_page(self._bodies[number])


class Spent(NamedTuple):
    """The measured records of a run, and what they cost."""

    records: int
    cpu_seconds: float
    writes: int = 0  # write requests to the state store

    @property
    def per_cpu_second(self) -> float:
        """The number of records per CPU second."""
        return self.records / self.cpu_seconds


def canned_ports(layout: Layout, store: MemoryStore | None = None) -> Ports:
    """Return the ports of a client that reads prepared pages, with telemetry."""
    clock, body = SystemClock(), layout.body()
    bodies = [numbered(body, number) for number in range(PAGES_PER_SHARD)]

    async def open_source(stream: Stream) -> CannedSource:
        return CannedSource(stream.name, bodies)

    return memory_ports(
        clock,
        random.Random(),
        lambda: uuid.uuid4().hex,
        store or MemoryStore(clock),
        open_source,
        telemetry=OpenTelemetry("benchmark", clock),
    )


async def consume(layout: Layout, records: int, decode: Any = None) -> Spent:
    """Consume this number of records by ``async for``, and commit them."""
    store = MemoryStore(SystemClock())
    ports = canned_ports(layout, store)
    async with Kinesumer("benchmark", _ports=ports) as client:
        taken = client.consume(STREAMS, start=Start.TRIM_HORIZON, decode=decode)
        spent = await drain(taken, records)
    return spent._replace(writes=store.usage.requests["write"])


async def drain(stream: Records, records: int, skip: int = 1) -> Spent:
    """Skip some records. Consume this number of further ones, and measure these."""
    count, began = -skip, 0.0
    async for _ in stream:
        count += 1
        if not count:
            began = time.process_time()
        if count == records:
            break
    return Spent(count, time.process_time() - began)


def set_up_telemetry() -> None:
    """Set up OpenTelemetry's SDK so that it collects everything and exports nothing."""
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
    trace.set_tracer_provider(TracerProvider())
