"""Collect what OpenTelemetry's SDK gets."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kinesumer.telemetry.instruments import Instruments
from kinesumer.telemetry.otel import OpenTelemetry
from tests.support.handler_client import Runner
from tests.support.world import Client, World

APP = {
    "messaging.system": "aws.kinesis",
    "messaging.consumer.group.name": "app",
}
ORDERS = {
    **APP,
    "messaging.destination.name": "orders",
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

    def metrics(self) -> list[Any]:
        """Return every metric."""
        data: Any = self._reader.get_metrics_data()
        return list(data.resource_metrics[0].scope_metrics[0].metrics)

    def collect(self) -> dict[str, list[Any]]:
        """Return the data points of every metric that has any."""
        return {
            metric.name: list(metric.data.data_points)
            for metric in self.metrics()
            if metric.data.data_points
        }

    def values(self, name: str) -> list[tuple[dict[str, str], int]]:
        """Return the attributes and the value of each data point of a metric."""
        full = name if name.startswith("messaging.") else f"kinesumer.{name}"
        points = self.collect().get(full, [])
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

    @property
    def batch_spans(self) -> list[Any]:
        """The finished spans of calls of the handler."""
        spans = self.spans("process orders")
        return [s for s in spans if "messaging.message.id" not in s.attributes]

    @property
    def record_spans(self) -> list[Any]:
        """The finished spans of single records."""
        spans = self.spans("process orders")
        return [s for s in spans if "messaging.message.id" in s.attributes]

    def spans(self, name: str) -> list[Any]:
        """Return the finished spans of a name."""
        return [s for s in self.sdk.exporter.get_finished_spans() if s.name == name]
