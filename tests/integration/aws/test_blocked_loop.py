"""Test clients whose user code blocks the event loop."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kinesumer import Config, Kinesumer, Start
from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.model.rows import Key
from kinesumer.model.streams import Stream
from kinesumer.testing import EmbeddedAws

TABLE = "kinesumer-state-store"
ANSWER_SECONDS = 0.5
BLOCK_SECONDS = 0.7  # longer than the timeout of a response


def block(seconds: float = BLOCK_SECONDS) -> None:
    """Block the event loop, like a handler that never awaits."""
    time.sleep(seconds)


async def test_no_call_to_the_state_store_fails(
    kinesumer_aws: EmbeddedAws,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("kinesumer.aws.dynamodb_calls.ANSWER_SECONDS", ANSWER_SECONDS)
    kinesumer_aws.create_stream("orders")
    for number in range(2):
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
            await asyncio.sleep(0.12)  # by now a commit waits for its response
            block()
            seen += 1
            if seen == 2:
                break
    assert "state store fails" not in caplog.text


async def test_a_read_whose_answer_came_meanwhile_succeeds(
    kinesumer_aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kinesumer.aws.polling.ANSWER_SECONDS", ANSWER_SECONDS)
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


async def another_beat(client_id: str) -> bool:
    """Wait for the client's next heartbeat."""
    async with ClientFactory() as clients:
        store = await open_store(clients, TABLE)
        key, seen = Key("member#app", client_id), set[object]()
        async with asyncio.timeout(10):
            while len(seen) < 3:
                row = await store.get(key)
                assert row is not None
                seen.add(row["beat"])
                await asyncio.sleep(0.05)
    return True


async def test_a_client_beats_while_user_code_blocks_its_loop(
    kinesumer_aws: EmbeddedAws,
) -> None:
    kinesumer_aws.create_stream("orders")
    kinesumer_aws.put("orders", b"data")
    config = Config(heartbeat_interval_seconds=0.2, lease_duration_seconds=5.0)
    made = Kinesumer("app", table=TABLE, client_id="c1", config=config)
    async with made as client:
        async for _ in client.consume("orders", start=Start.TRIM_HORIZON):
            with ThreadPoolExecutor() as pool:
                other_loop = pool.submit(lambda: asyncio.run(another_beat("c1")))
                assert other_loop.result()  # blocks the client's loop
            break
