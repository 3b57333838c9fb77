"""Test that a stream whose KMS key can't be used stops no other stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kinesumer import Config, Kinesumer, Start, Stream
from kinesumer.aws import fan_out
from kinesumer.consuming import read_place
from kinesumer.coordination import leader
from kinesumer.core.backoff import Backoff
from kinesumer.model.incidents import IncidentKind
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.embedded_aws.faults import KeyProblem
from tests.support.clock import until

QUICK = Config(rebalance_delay_seconds=0.1, leader_interval_seconds=0.1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "FIRST_PLAN_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(read_place, "REPAIR_BACKOFF", Backoff(0.05, 0.1))
    monkeypatch.setattr(fan_out, "CALL_SECONDS", 1.0)


@asynccontextmanager
async def consuming(*streams: Stream) -> AsyncIterator[list[str]]:
    """Consume during the block. Yield the data that arrives."""
    data: list[str] = []

    async def consume(client: Kinesumer) -> None:
        nonlocal data
        async for record in client.consume(streams, start=Start.TRIM_HORIZON):
            data += [record.data.decode()]

    async with Kinesumer("app", config=QUICK) as client:
        task = asyncio.create_task(consume(client))
        try:
            yield data
            assert not task.done(), task.exception()
            await client.leave()
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.mark.parametrize(
    ("code", "fan_out_consumer"),
    [
        ("KMSDisabledException", None),
        ("KMSThrottlingException", None),
        ("KMSAccessDeniedException", "billing"),
    ],
)
async def test_only_the_stream_waits_until_its_key_can_be_used(
    kinesumer_aws: EmbeddedAws,
    caplog: pytest.LogCaptureFixture,
    code: KeyProblem,
    fan_out_consumer: str | None,
) -> None:
    aws = kinesumer_aws
    for name in ("orders", "payments"):
        aws.create_stream(name)
        aws.put(name, f"{name} 1".encode(), "key")
    aws.fault("key", resource="orders", operation="GetRecords", key_error=code)
    aws.fault("key", resource="*orders*", operation="SubscribeToShard", key_error=code)
    orders = Stream("orders", fan_out=fan_out_consumer)
    async with consuming(orders, Stream("payments")) as data:
        await until(lambda: "payments 1" in data)
        await until(lambda: IncidentKind.KMS.meaning in caplog.text)
        aws.put("payments", b"payments 2", "key")
        await until(lambda: "payments 2" in data)
        assert "orders 1" not in data
        aws.clear_faults()
        await until(lambda: "orders 1" in data)
    assert code in caplog.text or "access denied" in caplog.text
    assert "'kms' is over" in caplog.text
    assert "shards move to other clients" not in caplog.text


async def test_a_key_that_fails_within_a_subscription_loses_nothing(
    kinesumer_aws: EmbeddedAws, caplog: pytest.LogCaptureFixture
) -> None:
    aws = kinesumer_aws
    aws.create_stream("orders")
    async with consuming(Stream("orders", fan_out="billing")) as data:
        aws.put("orders", b"0", "key")
        await until(lambda: data)
        aws.fault("key", count=1)
        aws.put("orders", b"1", "key")
        await until(lambda: len(data) == 2)
    assert data == ["0", "1"]
    assert "KMSDisabledException" in caplog.text
