"""Test FastStream's metrics and traces of messages."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from kinesumer.faststream import KinesisBroker, KinesisMessage, TestKinesisBroker
from kinesumer.faststream.opentelemetry import KinesisTelemetryMiddleware
from kinesumer.faststream.prometheus import KinesisPrometheusMiddleware


async def publish_all(broker: KinesisBroker) -> list[KinesisMessage]:
    """Publish a message, and a batch of two into another stream."""
    seen = []

    @broker.subscriber("orders")
    async def on_order(body: str, message: KinesisMessage) -> None:
        seen.append(message)

    @broker.subscriber("refunds", batch=True)
    async def on_refunds(bodies: list[str], message: KinesisMessage) -> None:
        seen.append(message)

    async with TestKinesisBroker(broker):
        await broker.publish("abc", "orders", correlation_id="c1")
        await broker.publish_batch("a", "bc", stream="refunds", correlation_id="c2")
    return seen


async def test_messages_are_counted_for_prometheus() -> None:
    registry = CollectorRegistry()
    middleware = KinesisPrometheusMiddleware(registry=registry)
    await publish_all(KinesisBroker("billing", middlewares=[middleware]))
    for stream, count, size in (("orders", 1, 3), ("refunds", 2, 3)):
        labels = {"app_name": "faststream", "broker": "aws.kinesis", "handler": stream}
        received = "faststream_received_messages"
        assert registry.get_sample_value(f"{received}_total", labels) == count
        assert registry.get_sample_value(f"{received}_size_bytes_sum", labels) == size
        del labels["handler"]
        labels |= {"destination": stream, "status": "success"}
        published = "faststream_published_messages_total"
        assert registry.get_sample_value(published, labels) == count


async def test_the_trace_of_a_message_goes_on_in_its_handler() -> None:
    spans, metrics = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    middleware = KinesisTelemetryMiddleware(
        tracer_provider=tracers, meter_provider=MeterProvider([metrics])
    )
    broker = KinesisBroker("billing", middlewares=[middleware])
    first, second = await publish_all(broker)
    found = {span.name: span for span in spans.get_finished_spans()}
    assert found.keys() == {
        f"{stream} {what}"
        for stream in ("orders", "refunds")
        for what in ("create", "publish", "process")
    }
    process, publish = found["orders process"], found["orders publish"]
    assert process.context and publish.context
    assert process.context.trace_id == publish.context.trace_id
    assert f"{publish.context.trace_id:032x}" in first.headers["traceparent"]
    assert process.attributes is not None
    assert process.attributes["messaging.system"] == "aws.kinesis"
    assert process.attributes["messaging.message.id"] == first.message_id
    batch = found["refunds publish"].attributes
    assert batch is not None and batch["messaging.batch.message_count"] == 2
    assert second.correlation_id == "c2"
