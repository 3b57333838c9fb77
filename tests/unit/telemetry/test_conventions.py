"""Test that names follow the published registry of OpenTelemetry's conventions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import (
    cloud_attributes,
    messaging_attributes,
)
from opentelemetry.semconv._incubating.attributes.messaging_attributes import (
    MessagingOperationTypeValues,
    MessagingSystemValues,
)
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind

from kinesumer import Record
from kinesumer.errors import SourceUnavailableError
from kinesumer.producer.record_producer import RecordProducer
from kinesumer.telemetry import conventions
from kinesumer.telemetry.otel import OpenTelemetry
from kinesumer.wire.put_records import Entry, EntryResult
from tests.support.handler_client import BURY, ONCE
from tests.support.otel import Sdk, Traced
from tests.support.toy_stream import INFO, TAKEN, PutTarget
from tests.support.world import ARN, World

MODULES = (messaging_attributes, cloud_attributes, error_attributes)
ATTRIBUTES = {
    value
    for module in MODULES
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
METRICS = {
    value: name.lower()
    for name, value in vars(messaging_metrics).items()
    if name.isupper() and isinstance(value, str)
}
DEPRECATED = {
    *("messaging.operation", "messaging.client.published.messages"),
    *("messaging.process.messages", "messaging.receive.messages"),
    *("messaging.publish.messages", "messaging.publish.duration"),
    "messaging.receive.duration",
}
# What the conventions require of all these metrics, and of all spans.
REQUIRED = {"messaging.operation.name", "messaging.system"}
# Of operations with one stream, these are required if they are known.
OF_A_STREAM = {"messaging.destination.name", "messaging.operation.type"}
PREFIXES = ("messaging.", "cloud.", "error.")
TYPES = {member.value for member in MessagingOperationTypeValues}
KINDS = {
    "create": SpanKind.PRODUCER,
    "send": SpanKind.CLIENT,  # its context is not that of the messages
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
}


def test_each_name_is_in_the_registry_and_is_not_deprecated() -> None:
    names = {
        value
        for value in vars(conventions).values()
        if isinstance(value, str) and value.startswith(PREFIXES)
    }
    assert len(names) > 10
    assert names <= ATTRIBUTES | METRICS.keys()
    assert not names & DEPRECATED


def test_the_systems_name_is_one_that_the_registry_leaves_to_others() -> None:
    known = {member.value for member in MessagingSystemValues}
    assert not [name for name in known if "kinesis" in name]


async def run(world: World) -> Sdk:
    """Let a client and a producer do what has metrics and spans of messaging."""
    sdk = Sdk()
    telemetry = OpenTelemetry(None, world.clock, sdk.instruments)

    class Target(PutTarget):
        def __init__(self) -> None:
            super().__init__()
            self.errors: list[Exception] = [SourceUnavailableError("busy")]

        async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
            if self.errors:
                raise self.errors.pop()
            return [TAKEN for _ in records]

    producer = RecordProducer(
        Target(),
        INFO._replace(arn=ARN),
        ordered=False,
        chance=Random(1),
        telemetry=telemetry,
    )

    async def handle(record: Record) -> None:
        if record.data == b"bad":
            raise ValueError

    runner = Traced(world, sdk, handle, traceparent="tp", retries=ONCE, **BURY)
    await world.until(lambda: runner.held)
    for number in range(2):
        header = telemetry.create_message(ARN)
        await producer.add(Entry(b"x", str(number)), header)
        world.put(f'{{"tp": "{header}"}}')
    await producer.flush()

    world.put("bad")
    await world.until(lambda: runner.letters.stored)
    await asyncio.sleep(10)
    await runner.leave()
    return sdk


async def test_metrics_have_the_units_and_attributes_of_the_conventions(
    world: World,
) -> None:
    sdk = await run(world)
    metrics = {m.name: m for m in sdk.metrics() if m.name.startswith("messaging.")}
    assert metrics.keys() == {
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
        "messaging.client.sent.messages",
        "messaging.process.duration",
    }
    for name, metric in metrics.items():
        made = _made_by_the_registry(METRICS[name])
        assert metric.unit == made["unit"]
        for point in metric.data.data_points:
            assert REQUIRED <= point.attributes.keys() <= ATTRIBUTES
            if name.endswith("duration"):
                assert OF_A_STREAM <= point.attributes.keys()
                assert tuple(point.explicit_bounds) == conventions.BUCKETS
            kind = point.attributes.get("messaging.operation.type", "process")
            assert kind in TYPES
    durations = [*metrics["messaging.client.operation.duration"].data.data_points]
    assert {point.attributes["messaging.operation.type"] for point in durations} == {
        *("receive", "send", "settle")
    }
    failed = [p for p in durations if p.attributes.get("error.type")]
    assert [p.attributes["error.type"] for p in failed] == ["SourceUnavailableError"]


def _made_by_the_registry(name: str) -> dict[str, Any]:
    """Return the arguments with which the registry's package makes an instrument."""
    made: dict[str, Any] = {}

    class Meter:
        def create_counter(self, **arguments: Any) -> None:
            made.update(arguments)

        create_histogram = create_counter

    getattr(messaging_metrics, f"create_{name}")(Meter())
    return made


async def test_spans_have_the_names_kinds_and_attributes_of_the_conventions(
    world: World,
) -> None:
    sdk = await run(world)
    found = list(_spans_of_messaging(sdk))
    types = {span.attributes["messaging.operation.type"] for span in found}
    assert types == {"create", "send", "process", "settle"}
    for span in found:
        attributes = span.attributes
        assert {*REQUIRED, "messaging.operation.type"} <= attributes.keys()
        own = {name for name in attributes if name.startswith("kinesumer.")}
        assert attributes.keys() - own <= ATTRIBUTES
        stream = attributes.get("messaging.destination.name", "")
        assert span.name == f"{attributes['messaging.operation.name']} {stream}".strip()
        assert span.kind is KINDS[attributes["messaging.operation.type"]]
        single, batch = "messaging.message.id", "messaging.batch.message_count"
        if attributes["messaging.operation.type"] == "process":
            assert "messaging.consumer.group.name" in attributes
            assert "messaging.destination.partition.id" in attributes
            assert (single in attributes) is not (batch in attributes)


async def test_what_processes_or_sends_a_record_is_linked_to_its_creation(
    world: World,
) -> None:
    sdk = await run(world)
    spans = list(_spans_of_messaging(sdk))
    created = {s.context.span_id for s in spans if s.name == "create orders"}
    assert len(created) == 2
    sends = [s for s in spans if s.name == "put_records orders"]
    for send in sends:
        assert {link.context.span_id for link in send.links} <= created
    assert {link.context.span_id for s in sends for link in s.links} == created
    singles = [s for s in spans if "messaging.message.id" in s.attributes]
    assert {s.links[0].context.span_id for s in singles} == created


def _spans_of_messaging(sdk: Sdk) -> Iterator[Any]:
    for span in sdk.exporter.get_finished_spans():
        if not span.name.startswith("kinesumer."):
            yield span


@pytest.mark.parametrize("arn", ["", ARN])
def test_attributes_of_a_stream_are_those_that_are_known(arn: str) -> None:
    found = conventions.stream_attributes(arn)
    assert found["messaging.system"] == "aws.kinesis"
    assert ("messaging.destination.name" in found) is bool(arn)
