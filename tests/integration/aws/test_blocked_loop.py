"""User code that blocks the event loop for longer than answers may take."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kinesumer import Config, Kinesumer, Start
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.model.streams import Stream

if TYPE_CHECKING:
    import pytest

    from kinesumer.local import EmbeddedAws

TABLE = "kinesumer-state-store"
ANSWER_SECONDS = 0.5
BLOCK_SECONDS = 1.0


def block(seconds: float = BLOCK_SECONDS) -> None:
    """Hold the event loop, as a handler that never awaits does."""
    time.sleep(seconds)


async def test_no_call_to_the_state_store_fails(
    kinesumer_aws: EmbeddedAws,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kinesumer.aws.dynamodb_calls.ANSWER_SECONDS", ANSWER_SECONDS)
    kinesumer_aws.create_stream("orders")
    for number in range(4):
        kinesumer_aws.put("orders", b"data %d" % number)
    kinesumer_aws.fault("latency", operation="UpdateItem", latency_seconds=0.2)
    config = Config(
        heartbeat_interval_seconds=0.5,
        lease_duration_seconds=5.0,
        commit_interval_seconds=0.1,
    )
    async with Kinesumer("app", table=TABLE, config=config) as client:
        seen = 0
        async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
            await asyncio.sleep(0.12)  # a commit is under way
            block()
            seen += 1
            if seen == 4:
                break
    assert "state store fails" not in caplog.text


async def test_a_read_whose_answer_came_meanwhile_succeeds(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.aws.kinesis.ANSWER_SECONDS", ANSWER_SECONDS)
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.put("orders", b"data")
    async with ClientFactory() as clients:
        source = await open_source(clients, Stream("orders"))
        iterator = await source.get_iterator("shardId-000000000000", Start.TRIM_HORIZON)
        kinesumer_aws.fault("latency", operation="GetRecords", latency_seconds=0.1)
        reading = asyncio.create_task(source.get_records(iterator, 10))
        await asyncio.sleep(0.05)
        block()
        assert [record.data for record in (await reading).records] == [b"data"]
