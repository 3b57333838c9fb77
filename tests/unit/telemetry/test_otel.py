"""What is measured and traced in a small run, and what it costs who doesn't ask."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
from hashlib import md5
from itertools import count
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesumer.config import Config
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.coordination.gauges import read_gauges
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.simulation.event_loop import VirtualLoop
from kinesumer.telemetry import names
from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.otel import Instruments, OpenTelemetry
from kinesumer.testing.memory import MemoryKinesis, MemorySource, MemoryStore
from kinesumer.wire.aggregation import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest

    from kinesumer.model.streams import Stream

METRICS = {
    getattr(names, name)
    for name in (
        "RECORDS_PROCESSED DATA_BYTES_PROCESSED RECORDS_OUTSIDE LOST_LEASES THROTTLES "
        "ROUND_DURATION HAND_OVER_DURATION COMMIT_DURATION HEARTBEAT_DURATION "
        "MILLIS_BEHIND_LATEST CURRENT_LEASES LEASES_TO_TAKE TOTAL_LEASES NUM_WORKERS "
        "BUFFERED_BYTES RECORDS_UNCOMMITTED"
    ).split()
}
ALLOWED = {
    names.APP,
    names.STREAM_NAME,
    names.REGION,
    names.ACCOUNT,
    names.SERVICE,
}
ORDERS = {
    names.APP: "app",
    names.STREAM_NAME: "orders",
    names.REGION: "us-east-1",
    names.ACCOUNT: "123456789012",
}


class Sdk:
    """An SDK that keeps what it is told, apart from the process's own."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.exporter = InMemorySpanExporter()
        self._meters = MeterProvider([self._reader])
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.instruments = Instruments(
            self._meters.get_meter("test"), tracers.get_tracer("test")
        )

    def collect(self) -> dict[str, list[Any]]:
        """Return the data points of every metric that has any."""
        data: Any = self._reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
            if metric.data.data_points
        }


class World:
    """A store, a stream and clients in virtual time."""

    def __init__(self, shards: int = 4) -> None:
        self.loop = VirtualLoop(random.Random(1))
        self.clock = self.loop.services
        self.store = MemoryStore(self.clock)
        self.kinesis = MemoryKinesis(self.clock)
        self.kinesis.create_stream("orders", shards)
        self._ids = count()

    def run(self, play: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a play to its end."""
        self.loop.run(play())

    def client(
        self, client_id: str, tells: Telemetry, seconds_per_record: float = 0
    ) -> Client:
        """Return a client that consumes ``orders`` from now on."""
        return Client(self, client_id, tells, seconds_per_record)

    def new_id(self) -> str:
        """Return an id that nobody else has."""
        return f"id-{next(self._ids)}"


class Client:
    """The engine of one client, and user code that takes its time."""

    def __init__(
        self, world: World, client_id: str, tells: Telemetry, seconds_per_record: float
    ) -> None:
        self.world, self.seen = world, 0
        self._seconds = seconds_per_record
        clock = world.clock
        context = ClientContext(
            app="app",
            client_id=client_id,
            config=Config(),
            store=world.store,
            clock=clock,
            random=random.Random(2),
            new_id=world.new_id,
            failure_log=FailureLog(clock, tells),
            telemetry=tells,
        )
        self.delivery = RecordDelivery(clock, acks_by_asking=True)
        heart = HeartbeatTask(context)
        self.group = GroupConsumer(context, self._open_source, heart, self.delivery)
        self._task = asyncio.get_running_loop().create_task(self._consume())

    async def _open_source(self, stream: Stream) -> MemorySource:
        return self.world.kinesis.source(stream.name)

    async def _begin(self) -> None:
        await self.group.start("orders", Start.TRIM_HORIZON)

    async def _consume(self) -> None:
        async for _ in Records(self.delivery, self._begin):
            self.seen += 1
            await asyncio.sleep(self._seconds)

    async def stop(self) -> None:
        """Leave the group."""
        await self.group.stop(wait_for_user=False)
        await self._task


def aggregate(key: str, data: bytes) -> bytes:
    """Return a KPL frame with one user record."""
    record = bytes([0x08, 0, 0x1A, len(data)]) + data
    body = bytes([0x0A, len(key)]) + key.encode() + bytes([0x1A, len(record)]) + record
    return MAGIC + body + md5(body, usedforsecurity=False).digest()


def test_a_small_run_records_every_metric_with_bounded_attributes() -> None:
    sdk, world = Sdk(), World()

    async def play() -> None:
        tells = OpenTelemetry("app", world.clock, sdk.instruments)
        for number in range(20):
            world.kinesis.put("orders", b"0123456789", str(number))
        elsewhere = (int.from_bytes(md5(b"key").digest()) + HASH_KEYS // 2) % HASH_KEYS
        world.kinesis.put("orders", aggregate("key", b"user data!"), "", elsewhere)
        one = world.client("one", tells)
        tells.watch(lambda: read_gauges(one.group))
        await asyncio.sleep(10)
        two = world.client("two", OpenTelemetry("app", world.clock, sdk.instruments))
        await asyncio.sleep(30)
        world.kinesis.reads_per_second = -1  # every read is one too many
        await asyncio.sleep(5)
        assert one.group.session is not None
        one.group.session.coordinator.shards.drop(next(iter(one.group.owned_shards())))
        found = sdk.collect()
        assert set(found) == METRICS
        assert {
            key for points in found.values() for p in points for key in p.attributes
        } == ALLOWED
        assert one.seen == 21
        assert values(found, names.RECORDS_PROCESSED) == [(ORDERS, 21)]
        assert values(found, names.DATA_BYTES_PROCESSED) == [(ORDERS, 210)]
        assert values(found, names.RECORDS_OUTSIDE) == [(ORDERS, 1)]
        assert values(found, names.TOTAL_LEASES) == [(ORDERS, 4)]
        assert values(found, names.CURRENT_LEASES) == [(ORDERS, 1)]
        assert values(found, names.NUM_WORKERS) == [({names.APP: "app"}, 2)]
        assert [p.count for p in found[names.HAND_OVER_DURATION]] == [2]
        await two.stop()
        await one.stop()

    world.run(play)


def test_rounds_commits_and_hand_overs_are_traced_and_records_are_not() -> None:
    sdk, world = Sdk(), World()

    async def play() -> None:
        tells = OpenTelemetry("app", world.clock, sdk.instruments)
        one = world.client("one", tells)
        await asyncio.sleep(10)
        two = world.client("two", tells)
        await asyncio.sleep(10)
        sdk.exporter.clear()
        for number in range(1000):
            world.kinesis.put("orders", b"x", str(number))
        await asyncio.sleep(20)
        assert one.seen + two.seen == 1000
        assert sdk.exporter.get_finished_spans() != ()
        assert len(sdk.exporter.get_finished_spans()) < 10
        await two.stop()
        await asyncio.sleep(20)
        await one.stop()

    world.run(play)
    spans = {span.name for span in sdk.exporter.get_finished_spans()}
    assert spans == {names.ROUND_SPAN, names.COMMIT_SPAN}


def test_a_planned_move_is_traced() -> None:
    sdk, world = Sdk(), World(shards=2)

    async def play() -> None:
        tells = OpenTelemetry("app", world.clock, sdk.instruments)
        one = world.client("one", tells)
        await asyncio.sleep(10)
        two = world.client("two", tells)
        await asyncio.sleep(20)
        await two.stop()
        await one.stop()

    world.run(play)
    moves = [
        span
        for span in sdk.exporter.get_finished_spans()
        if span.name == names.HAND_OVER_SPAN
    ]
    assert [dict(move.attributes or {}) for move in moves] == [ORDERS]


def test_clients_of_one_process_add_up_until_they_are_forgotten() -> None:
    sdk, world = Sdk(), World()

    async def play() -> None:
        tells = [OpenTelemetry("app", world.clock, sdk.instruments) for _ in range(2)]
        one, two = (world.client(f"client-{n}", tells[n]) for n in range(2))
        tells[0].watch(lambda: read_gauges(one.group))
        tells[1].watch(lambda: read_gauges(two.group))
        await asyncio.sleep(10)
        assert values(sdk.collect(), names.CURRENT_LEASES) == [(ORDERS, 4)]
        await two.stop()
        tells[1].unwatch()
        assert values(sdk.collect(), names.CURRENT_LEASES) == [(ORDERS, 2)]
        await one.stop()

    world.run(play)


def test_a_batch_that_user_code_is_slow_with_is_counted_as_it_goes() -> None:
    sdk, world = Sdk(), World(shards=1)

    async def play() -> None:
        for _ in range(100):
            world.kinesis.put("orders", b"0123456789")
        tells = OpenTelemetry("app", world.clock, sdk.instruments)
        one = world.client("one", tells, seconds_per_record=1)
        await asyncio.sleep(30)
        ((_, records),) = values(sdk.collect(), names.RECORDS_PROCESSED)
        assert 10 < records < 40
        await one.stop()

    world.run(play)


def test_without_an_sdk_it_does_nothing() -> None:
    world = World()

    async def play() -> None:
        tells = OpenTelemetry("app", world.clock)
        one = world.client("one", tells)
        tells.watch(lambda: read_gauges(one.group))
        tells.count(names.THROTTLES, service="dynamodb")
        tells.count(
            names.LOST_LEASES, "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
        )
        world.kinesis.put("orders", b"x")
        await asyncio.sleep(10)
        assert one.seen == 1
        await one.stop()
        tells.unwatch()

    world.run(play)


def test_importing_the_package_loads_neither_opentelemetry_nor_an_aws_client() -> None:
    code = "import sys, kinesumer; print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}
    assert not loaded & {"opentelemetry", "botocore", "aiobotocore", "aiohttp", "moto"}


def test_log_lines_carry_what_they_are_about(caplog: pytest.LogCaptureFixture) -> None:
    world = World(shards=1)
    caplog.set_level(logging.INFO, "kinesumer")

    async def play() -> None:
        one = world.client("one", Telemetry())
        await asyncio.sleep(10)
        await one.stop()

    world.run(play)
    (claim,) = [r for r in caplog.records if r.getMessage().startswith("claimed")]
    fields = {name: getattr(claim, name) for name in ("stream", "shard_id", "epoch")}
    assert fields == {
        "stream": "orders",
        "shard_id": "shardId-000000000000",
        "epoch": 1,
    }


def values(found: dict[str, list[Any]], name: str) -> list[tuple[dict[str, str], int]]:
    """Return a metric's attributes and value per data point."""
    return [(dict(point.attributes), point.value) for point in found.get(name, [])]
