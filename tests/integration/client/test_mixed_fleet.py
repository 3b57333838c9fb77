"""Test fleets of which some clients read by fan-out, and others poll."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kinesumer import Config, Kinesumer, Start, Stream
from kinesumer.aws.dynamodb import open_store
from kinesumer.aws.kinesis import open_source
from kinesumer.aws.session import ClientFactory
from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.config import STATE_STORE
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.testing import EmbeddedAws
from tests.support.clock import PATIENCE_SECONDS, until

QUICK = Config(
    heartbeat_interval_seconds=0.2,
    lease_duration_seconds=5.0,
    leader_interval_seconds=0.2,
    rebalance_delay_seconds=0.1,
    listing_interval_seconds=0.5,
    commit_interval_seconds=0.2,
)
POLLING, FAN_OUT = Stream("orders"), Stream("orders", fan_out="billing")


class Fleet:
    """Clients of one app, and how often they were delivered each record."""

    def __init__(self, aws: EmbeddedAws) -> None:
        self.aws = aws
        self.put_count = 0
        self.seen: Counter[bytes] = Counter()
        self.by: Counter[str] = Counter()

    @asynccontextmanager
    async def client(self, client_id: str, stream: Stream) -> AsyncIterator[Kinesumer]:
        """Run a client that hands its shards over at the end."""

        async def consume() -> None:
            async for record in client.consume(stream, start=Start.TRIM_HORIZON):
                self.seen[record.data] += 1
                self.by[client_id] += 1

        async with Kinesumer("app", client_id=client_id, config=QUICK) as client:
            task = asyncio.create_task(consume())
            try:
                yield client
            finally:
                await client.leave()
                await task

    async def put(self, count: int) -> None:
        """Put records, and wait until all that were ever put have been delivered."""
        for _ in range(count):
            self.put_count += 1
            self.aws.put("orders", b"%d" % self.put_count, f"key {self.put_count}")
        await until(lambda: len(self.seen) >= self.put_count)


async def balanced(*clients: Kinesumer) -> None:
    """Wait until each client has shards."""
    await until(lambda: all(client.assignment() for client in clients))


@pytest.fixture
def fleet(kinesumer_aws: EmbeddedAws) -> Fleet:
    kinesumer_aws.create_stream("orders", shards=4)
    return Fleet(kinesumer_aws)


async def test_a_fleet_changes_to_fan_out_and_back_and_repeats_nothing(
    fleet: Fleet,
) -> None:
    async with fleet.client("polling", POLLING) as polling:
        await fleet.put(20)
        async with fleet.client("pushed", FAN_OUT) as pushed:
            await balanced(polling, pushed)
            await fleet.put(40)
            fleet.aws.split("orders", fleet.aws.open_shards("orders")[0])
            await fleet.put(40)
    assert fleet.by["polling"] and fleet.by["pushed"]
    async with fleet.client("pushed", FAN_OUT) as pushed:
        await fleet.put(20)
        async with fleet.client("polling", POLLING) as polling:
            await balanced(polling, pushed)
            await fleet.put(40)
    async with fleet.client("polling", POLLING):
        await fleet.put(20)
    assert set(fleet.seen.values()) == {1}
    subscribed = {one.operation for one in fleet.aws.journal.counts()}
    assert {"SubscribeToShard", "GetRecords"} <= subscribed


async def test_a_client_polls_on_when_its_consumer_is_deregistered(
    fleet: Fleet,
) -> None:
    stream = Stream("orders", fan_out="billing", fan_out_fallback=True)
    async with fleet.client("one", stream), ClientFactory() as clients:
        await fleet.put(20)
        source = await open_source(clients, Stream("orders"))
        # While it may not register the consumer again, the client polls.
        fleet.aws.deny("kinesis:RegisterStreamConsumer")
        await StreamConsumers(source).deregister("billing")
        await fleet.put(20)
        store = await open_store(clients, STATE_STORE)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                [member] = (await read_snapshot(store, "app")).alive
                if any(use.problem for use in member.fan_out.values()):
                    break
                await asyncio.sleep(0.1)
    assert set(fleet.seen.values()) == {1}
