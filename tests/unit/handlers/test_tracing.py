"""Test that producers' traces are found in records, and the spans of user code."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kinesumer import Batch
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.handler_function import read_traceparent
from kinesumer.model.records import Record
from tests.support.handler_client import BURY, ONCE, ignore
from tests.support.otel import ORDERS, Sdk, Traced
from tests.support.world import World

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"
OTHER = f"00-{TRACE}-00f067aa0ba902b8-01"


PROCESS = ORDERS | {
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.partition.id": "shardId-000000000000",
}


def number_of(world: World, data: bytes) -> str:
    """Return the sequence number of a record in the stream."""
    log = world.kinesis.stream("orders").shards["shardId-000000000000"].log
    [number] = [record.sequence_number for record in log if record.data == data]
    return number


def record(data: bytes) -> Record:
    return Record("1", data)


@pytest.mark.parametrize(
    ("path", "data", "found"),
    [
        ("traceparent", b'{"traceparent": "x"}', "x"),
        ("meta.headers.tp", b'{"meta": {"headers": {"tp": "x"}}}', "x"),
        ("meta.headers.tp", b'{"meta": {"headers": null}}', None),
        ("meta.headers.tp", b'{"meta": "headers"}', None),
        ("traceparent", b'{"traceparent": 7}', None),
        ("traceparent", b'["traceparent"]', None),
        ("traceparent", b"no JSON", None),
        ("traceparent", b"\xff\xfe", None),
        ("traceparent", b"[" * 100_000, None),
        ("traceparent", b"", None),
    ],
)
def test_a_path_finds_a_field_of_json_and_nothing_in_anything_else(
    path: str, data: bytes, found: str | None
) -> None:
    find = read_traceparent(path)
    assert find is not None
    assert find(record(data)) == found


async def test_a_batchs_span_is_linked_to_each_of_its_producers_once(
    world: World,
) -> None:
    inside: list[Any] = []

    async def handle(batch: Batch) -> None:
        inside.append(trace.get_current_span())

    headers = [HEADER, HEADER, "nonsense", "", OTHER]
    world.put(*(f'{{"tp": "{header}"}}' for header in headers), "no JSON")
    runner = Traced(world, Sdk(), handle, traceparent="tp")
    await world.until(lambda: runner.batch_spans)
    [span] = runner.batch_spans
    assert span.attributes == PROCESS | {"messaging.batch.message_count": 6}
    assert span.kind is SpanKind.CONSUMER
    linked = [f"{link.context.span_id:016x}" for link in span.links]
    assert linked == [SPAN, OTHER.split("-")[2]]
    assert span.parent is None
    assert inside[0].get_span_context() == span.context


async def test_a_records_span_is_a_child_of_its_producers_and_linked_to_the_batch(
    world: World,
) -> None:
    def found(record: Record) -> str | None:
        return HEADER if record.data == b"b" else None

    world.put("a", "b", "c")
    runner = Traced(world, Sdk(), ignore, traceparent=found)
    await world.until(lambda: runner.batch_spans)
    [batch] = runner.batch_spans
    [span] = runner.record_spans
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN
    producer, own = span.links
    assert (producer.context, own.context) == (span.parent, batch.context)
    assert span.attributes == PROCESS | {"messaging.message.id": number_of(world, b"b")}
    assert span.kind is SpanKind.CONSUMER
    assert not batch.links


async def test_a_traceparent_that_is_long_or_odd_costs_nothing_and_names_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The regular expression of OpenTelemetry's API 1.30 takes hours for the first one.
    extract, parsed = TraceContextTextMapPropagator.extract, list[str]()

    def parse(self: Any, carrier: dict[str, str], context: Context) -> Context:
        parsed.append(carrier["traceparent"])
        return extract(self, carrier, context)

    monkeypatch.setattr(TraceContextTextMapPropagator, "extract", parse)
    texts = [f"{HEADER}-{' ' * 1_000_000}\nx", "\x00", "00-\ud800", HEADER + "\n" * 9]

    world.put(*(str(place) for place in range(len(texts))))
    runner = Traced(
        world, Sdk(), ignore, traceparent=lambda record: texts[int(record.data)]
    )
    await world.until(lambda: runner.batch_spans)
    spans = runner.record_spans
    assert [span.parent for span in spans] == [None] * len(texts)
    assert parsed == texts[1:]
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]


async def test_failing_calls_and_dead_letters_are_counted_and_stand_in_the_span(
    world: World,
) -> None:
    async def handle(record: Record) -> None:
        if record.data == b"b":
            raise ValueError("bad")

    world.put("a", "b", "c")
    runner = Traced(
        world,
        Sdk(),
        handle,
        retries=RetryPolicy(max_attempts=3),
        **BURY,
    )
    await world.until(lambda: runner.letters.stored)
    await runner.leave()
    points = runner.sdk.collect()
    assert points["kinesumer.handler_failures"][0].value == 3
    assert points["kinesumer.dead_letters"][0].value == 1
    assert points["kinesumer.dead_letters"][0].attributes == ORDERS
    assert points["messaging.client.consumed.messages"][0].value == 3
    assert points["kinesumer.data_bytes_processed"][0].value == 3
    failed = [s for s in runner.batch_spans if not s.status.is_ok]
    assert len(failed) == 3
    assert failed[0].events[0].attributes["exception.message"] == "bad"
    assert failed[0].attributes["error.type"] == "ValueError"
    durations = {
        point.attributes.get("error.type"): point.count
        for point in points["messaging.process.duration"]
    }
    assert durations == {None: 1, "ValueError": 3}


async def test_what_finds_the_traceparent_may_fail_like_the_handler(
    world: World,
) -> None:
    def find(record: Record) -> str:
        raise KeyError("headers")

    world.put("a")
    runner = Traced(
        world,
        Sdk(),
        ignore,
        traceparent=find,
        retries=ONCE,
        **BURY,
    )
    await world.until(lambda: runner.letters.stored)
    assert runner.letters.stored[0].error == "KeyError: 'headers'"
