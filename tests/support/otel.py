"""Collect what OpenTelemetry's SDK gets."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesumer.telemetry.otel import Instruments, OpenTelemetry
from tests.support.handler_client import Runner
from tests.support.world import Client, World

ORDERS = {
    "kinesumer.app": "app",
    "aws.kinesis.stream_name": "orders",
    "cloud.region": "us-east-1",
    "cloud.account.id": "123456789012",
}


class Sdk:
    """An OpenTelemetry SDK that keeps all metrics and spans in memory."""

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

    def values(self, name: str) -> list[tuple[dict[str, str], int]]:
        """Return the attributes and the value of each data point of a metric."""
        points = self.collect().get(f"kinesumer.{name}", [])
        return [(dict(point.attributes), point.value) for point in points]

    def client(
        self, world: World, client_id: str, **options: Any
    ) -> tuple[Client, OpenTelemetry]:
        """Start a client that consumes ``orders``, and watch its gauges."""
        telemetry = OpenTelemetry("app", world.clock, self.instruments)
        return world.client(client_id, telemetry=telemetry, **options), telemetry


class Traced(Runner):
    """A client that reports to its own OpenTelemetry SDK."""

    def __init__(self, world: World, sdk: Sdk, handler: Any, **options: Any) -> None:
        self.sdk = sdk
        tells = OpenTelemetry("app", world.clock, sdk.instruments)
        super().__init__(world, handler, telemetry=tells, **options)

    def spans(self, name: str) -> list[Any]:
        """Return the finished spans of a name."""
        return [s for s in self.sdk.exporter.get_finished_spans() if s.name == name]
