"""Test that a trace leads from what puts a record to what handles it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kinesumer import Kinesumer, Producer, Record, Start, blocking
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS
from tests.support.otel import Sdk

pytestmark = pytest.mark.usefixtures("nobody_else_joins")


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Sdk:
    """Return the SDK to which all clients and producers report."""
    sdk = Sdk()
    monkeypatch.setattr(
        "kinesumer.telemetry.otel.process_instruments", lambda: sdk.instruments
    )
    return sdk


async def put(**options: Any) -> None:
    async with Producer("orders", traceparent="headers.tp", **options) as producer:
        for total in range(2):
            data = json.dumps({"total": total}).encode()
            await producer.put(data, partition_key="key")


async def put_by_a_thread(sdk: Sdk) -> None:
    def run() -> None:
        with blocking.Producer("orders", traceparent="headers.tp") as producer:
            # The thread has its own context: the one of the event loop is another.
            with sdk.instruments.tracer.start_as_current_span("checkout"):
                for total in range(2):
                    data = json.dumps({"total": total}).encode()
                    producer.put(data, partition_key="key")

    await asyncio.get_running_loop().run_in_executor(None, run)


async def handled() -> list[Any]:
    """Handle both records, and return their values."""
    found: list[Any] = []
    enough = asyncio.Event()

    async def handle(record: Record) -> None:
        found.append(json.loads(record.data))
        if len(found) == 2:
            enough.set()

    async with Kinesumer("billing") as client:
        running = asyncio.create_task(
            client.run(
                "orders", handle, start=Start.TRIM_HORIZON, traceparent="headers.tp"
            )
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            await enough.wait()
        await client.leave()
        await running
    return found


@pytest.mark.parametrize("way", ["plain", "aggregate", "blocking"])
async def test_a_handlers_span_is_linked_to_the_span_of_its_records_creation(
    kinesumer_aws: EmbeddedAws, sdk: Sdk, way: str
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    if way == "blocking":
        await put_by_a_thread(sdk)
    else:
        with sdk.instruments.tracer.start_as_current_span("checkout"):
            await put(aggregate=way == "aggregate")
    values = await handled()
    assert sorted(value["total"] for value in values) == [0, 1]

    spans = sdk.exporter.get_finished_spans()
    [checkout] = [span for span in spans if span.name == "checkout"]
    created = {s.context.span_id: s for s in spans if s.name == "create orders"}
    assert len(created) == 2
    parents = {span.parent and span.parent.span_id for span in created.values()}
    assert parents == {checkout.context.span_id}
    sent = [span for span in spans if span.name == "put_records orders"]
    assert {_linked(span) for span in sent} <= {
        frozenset(created),
        *(frozenset([one]) for one in created),
    }
    processed = [s for s in spans if "messaging.message.id" in (s.attributes or {})]
    assert len(processed) == 2
    for span in processed:
        assert span.parent is not None
        assert span.parent.span_id == span.links[0].context.span_id
        assert span.context.trace_id == checkout.context.trace_id
    assert {span.links[0].context.span_id for span in processed} == created.keys()
    headers = {value["headers"]["tp"].split("-")[2] for value in values}
    assert headers == {f"{span_id:016x}" for span_id in created}


def _linked(span: Any) -> frozenset[int]:
    return frozenset(link.context.span_id for link in span.links)


async def test_without_an_sdk_records_are_put_as_they_are(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders", shards=1)
    await put()
    assert await handled() == [{"total": 0}, {"total": 1}]
