"""Test the metrics and spans of a small run, with and without an SDK."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from hashlib import md5
from random import Random

import pytest

from kinesumer.errors import PutFailedError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.streams import HASH_KEYS, FanOutUse
from kinesumer.ports import Polled
from kinesumer.producer.record_producer import RECORD_COST_BYTES, RecordProducer
from kinesumer.runtime.failure_log import IncidentLog
from kinesumer.telemetry import instruments
from kinesumer.telemetry.conventions import GROUP
from kinesumer.telemetry.otel import OpenTelemetry
from kinesumer.wire.put_records import Entry, EntryResult, aggregate
from tests.support.clients import Thinking
from tests.support.otel import APP, ORDERS, Sdk
from tests.support.toy_stream import INFO, TAKEN, PutTarget
from tests.support.world import ARN, World


def put(world: World, count: int, shards: int = 4) -> None:
    """Replace the stream by one with several shards, and put records of ten bytes."""
    world.kinesis.delete_stream("orders")
    world.kinesis.create_stream("orders", shards)
    for number in range(count):
        world.kinesis.put("orders", b"0123456789", str(number))


async def test_a_small_run_records_every_metric(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = Sdk()
    put(world, 20)
    elsewhere = (int.from_bytes(md5(b"key").digest()) + HASH_KEYS // 2) % HASH_KEYS
    frame = aggregate([Entry(b"user data!", "key", None)])
    world.kinesis.put("orders", frame, "", elsewhere)
    world.kinesis.put("orders", frame[:-1], "")
    use = FanOutUse("billing", "access denied")
    monkeypatch.setattr(Polled, "fan_out", lambda _: use)
    one, _ = sdk.client(world, "one")
    await asyncio.sleep(10)
    two, telemetry = sdk.client(world, "two")
    await asyncio.sleep(30)
    # A gauge is the sum over all clients of the process that are watched.
    assert sdk.values("current_leases") == [(ORDERS, 4)]
    assert sdk.values("fan_out_polling") == [(ORDERS, 2)]
    telemetry.unwatch()
    world.kinesis.reads_per_second = -1  # every read exceeds the limit
    await asyncio.sleep(5)
    assert one.group.session is not None
    one.group.session.coordinator.shards.drop(next(iter(one.group.owned_shards())))
    metrics = sdk.collect()
    names = {
        *instruments.COUNTERS,
        *instruments.STREAM_GAUGES,
        *instruments.CLIENT_GAUGES,
    }
    names -= {"corrupt_rows", "decode_failures", "handler_failures", "dead_letters"}
    names |= {f"{name}.duration" for name in instruments.DURATIONS}
    names -= {"data_bytes_put", "put_retries"}
    messaging = {
        "messaging.client.consumed.messages",
        "messaging.client.operation.duration",
    }
    assert metrics.keys() == {f"kinesumer.{name}" for name in names} | messaging
    points = [point for points in metrics.values() for point in points]
    attributes = {key for point in points for key in point.attributes}
    operation = {"messaging.operation.name", "messaging.operation.type"}
    assert attributes == {*ORDERS, "kinesumer.service"} | operation
    durations = metrics["messaging.client.operation.duration"]
    kinds = {point.attributes["messaging.operation.name"] for point in durations}
    assert kinds == {"commit", "get_records"}
    assert len(one.seen) == 22
    consume = ORDERS | {"messaging.operation.name": "consume"}
    assert sdk.values("messaging.client.consumed.messages") == [(consume, 22)]
    size = 210 + len(frame[:-1])
    assert sdk.values("data_bytes_processed") == [(ORDERS, size)]
    assert sdk.values("corrupt_aggregates") == [(ORDERS, 1)]
    assert sdk.values("records_outside_hash_range") == [(ORDERS, 1)]
    assert sdk.values("total_leases") == [(ORDERS, 4)]
    assert sdk.values("current_leases") == [(ORDERS, 1)]
    assert sdk.values("num_workers") == [(APP, 2)]
    assert [p.count for p in metrics["kinesumer.hand_over.duration"]] == [2]
    await two.stop()
    await one.stop()


async def test_incidents_are_counted_by_kind_and_stream(world: World) -> None:
    sdk = Sdk()
    put(world, 0)
    one, _ = sdk.client(world, "one")
    two, _ = sdk.client(world, "two")
    await world.until(lambda: one.held)
    assert sdk.values("incidents") == []
    for client in (one, two):
        client.group.context.incidents.note(IncidentKind.CREDENTIALS)
    one.group.context.incidents.note(IncidentKind.KMS, stream_arn=ARN)
    assert sdk.values("incidents") == [
        (APP | {"kinesumer.kind": "credentials"}, 2),
        (ORDERS | {"kinesumer.kind": "kms"}, 1),
    ]
    await one.stop()
    await two.stop()


async def test_spans_cover_rounds_commits_and_hand_overs(world: World) -> None:
    sdk = Sdk()
    put(world, 0)
    one, _ = sdk.client(world, "one")
    await asyncio.sleep(10)
    two, _ = sdk.client(world, "two")
    await asyncio.sleep(10)
    spans = sdk.exporter.get_finished_spans()
    moves = [span for span in spans if span.name == "kinesumer.hand_over"]
    assert [dict(move.attributes or {}) for move in moves] == [ORDERS] * 2
    sdk.exporter.clear()
    for number in range(1000):
        world.kinesis.put("orders", b"x", str(number))
    await asyncio.sleep(20)
    assert len(one.seen) + len(two.seen) == 1000
    assert 0 < len(sdk.exporter.get_finished_spans()) < 10
    await two.stop()
    await asyncio.sleep(20)
    await one.stop()
    names = {span.name for span in sdk.exporter.get_finished_spans()}
    assert names == {"kinesumer.round", "commit"}


async def test_records_of_a_slow_batch_are_counted_one_by_one(world: World) -> None:
    sdk = Sdk()
    put(world, 100, shards=1)
    one, _ = sdk.client(world, "one", handle=Thinking(1))
    await asyncio.sleep(30)
    ((_, records),) = sdk.values("messaging.client.consumed.messages")
    assert 10 < records < 40
    await one.stop()


async def test_without_an_sdk_telemetry_does_nothing(world: World) -> None:
    telemetry = OpenTelemetry("app", world.clock)
    one = world.client("one", telemetry=telemetry)
    telemetry.count("throttles", service="dynamodb")
    telemetry.count("lost_leases", ARN)
    world.put("x")
    await world.until(lambda: one.texts == ["x"])
    await one.stop()
    telemetry.unwatch()


async def test_log_records_have_stream_shard_and_epoch(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kinesumer")
    one = world.client("one")
    await world.until(lambda: one.held)
    await one.stop()
    (claim,) = [r for r in caplog.records if r.getMessage().startswith("claimed")]
    fields = {name: getattr(claim, name) for name in ("stream", "shard_id", "epoch")}
    shard_id = "shardId-000000000000"
    assert fields == {"stream": "orders", "shard_id": shard_id, "epoch": 1}


async def test_a_producer_reports_what_it_puts_without_an_app(world: World) -> None:
    sdk = Sdk()
    telemetry = OpenTelemetry(None, world.clock, sdk.instruments)
    throttled = EntryResult(error_code="ProvisionedThroughputExceededException")

    class Throttling(PutTarget):
        async def put_records(self, records: Sequence[Entry]) -> list[EntryResult]:
            await asyncio.sleep(1)
            return [TAKEN if one.data != b"late" else throttled for one in records]

    producer = RecordProducer(
        Throttling(),
        INFO._replace(arn=ARN),
        ordered=False,
        chance=Random(1),
        telemetry=telemetry,
        give_up_seconds=10,
    )
    telemetry.watch_producer(producer.read_gauges)
    for _ in range(3):
        await producer.add(Entry(b"12345", "key"))
    await producer.add(Entry(b"late", "key"))
    await asyncio.sleep(1.2)
    orders = {name: text for name, text in ORDERS.items() if name != GROUP}
    throttles = orders | {"kinesumer.service": "kinesis"}
    put = orders | {"messaging.operation.name": "put_records"}
    refused = put | {"error.type": "ProvisionedThroughputExceededException"}
    sent = sdk.values("messaging.client.sent.messages")
    assert sorted(sent, key=str) == [(refused, 1), (put, 3)]
    assert sdk.values("data_bytes_put") == [(orders, 24)]
    assert sdk.values("put_retries") == [(orders, 1)]
    assert sdk.values("throttles") == [(throttles, 1)]
    assert sdk.values("put_buffered_bytes") == [(orders, 7 + RECORD_COST_BYTES)]
    [duration] = sdk.collect()["messaging.client.operation.duration"]
    assert duration.attributes == put | {"messaging.operation.type": "send"}
    assert (duration.count, duration.sum) == (1, pytest.approx(1.0, abs=0.1))
    telemetry.unwatch()
    assert sdk.values("put_buffered_bytes") == []
    incidents = IncidentLog(world.clock)
    incidents.note_credentials("AWS has refused the credentials")
    telemetry.watch_producer(
        lambda: producer.read_gauges()._replace(incidents=(*incidents.current(),))
    )
    credentials = {"kinesumer.kind": "credentials", "messaging.system": "aws.kinesis"}
    assert sdk.values("incidents") == [(credentials, 1)]
    incidents.note_credentials("")
    assert sdk.values("incidents") == []
    telemetry.unwatch()
    with pytest.raises(PutFailedError):
        await producer.flush()


def test_reading_the_first_traceparent_imports_nothing() -> None:
    program = """
import sys
from kinesumer.telemetry.instruments import process_instruments
from kinesumer.telemetry.otel import links_to

process_instruments()
loaded = {*sys.modules}
links_to(["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
print(*({*sys.modules} - loaded))
"""
    found = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert found == "\n"
