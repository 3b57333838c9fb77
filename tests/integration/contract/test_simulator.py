"""Test that the simulator's Kinesis, over its network, keeps the contract."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.model.streams import Stream
from kinesumer.ports import StreamSource
from kinesumer.testing.memory import MemoryKinesis
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.fan_out import (
    LinkedFanOutSource,
    open_fan_out,
)
from kinesumer.testing.simulation.machine import SharedLink
from kinesumer.testing.simulation.network import NetworkConditions
from kinesumer.testing.trial.acceptance.check import Check
from kinesumer.testing.trial.acceptance.contract.consumers import CONSUMER_CHECKS
from kinesumer.testing.trial.acceptance.contract.shard_ends import END_CHECKS
from kinesumer.testing.trial.acceptance.contract.source import SOURCE_CHECKS
from kinesumer.testing.trial.acceptance.resources import Streams

EVERY_CHECK: list[Check[[Any, str]]] = [
    *SOURCE_CHECKS,
    *END_CHECKS,
    *CONSUMER_CHECKS,
]
# The simulator's pages are values, not bytes.
NOT_SIMULATED = "a page is sent as cbor if asked for"


class SimulatedStreams(Streams):
    """The streams of the simulator, over its network and in virtual time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._machine = loop.machine("contract", 1.0)
        self._line = SharedLink(loop)
        self._clock = loop.services
        self._kinesis = MemoryKinesis(self._clock)

    async def create(self, stream: str, shards: int = 1) -> None:
        self._kinesis.create_stream(stream, shards)

    async def delete(self, stream: str) -> None:
        self._kinesis.delete_stream(stream)

    async def source(self, stream: str) -> LinkedFanOutSource:
        link = (self._machine, Random(0), NetworkConditions())
        return LinkedFanOutSource(*link, self._kinesis, stream, self._line)

    async def consumers(self, stream: str) -> StreamConsumers:
        return StreamConsumers(await self.source(stream))

    async def fan_out(self, stream: str, consumer: str) -> StreamSource:
        source = await self.source(stream)
        return await open_fan_out(source, Stream(stream, fan_out=consumer))

    async def put(
        self, stream: str, data: bytes, key: str = "key", hash_key: int = 0
    ) -> tuple[str, str]:
        return self._kinesis.put(stream, data, key, hash_key)

    async def split(self, stream: str, shard_id: str) -> None:
        self._kinesis.split(stream, shard_id)

    async def merge(self, stream: str, shard_id: str, adjacent: str) -> None:
        self._kinesis.merge(stream, shard_id, adjacent)

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        await asyncio.sleep(seconds)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._kinesis.apply_retention()

    def now(self) -> float:
        return self._clock.wall()


@pytest.mark.parametrize(
    "check",
    [check for check in EVERY_CHECK if check.name != NOT_SIMULATED],
    ids=lambda check: check.name,
)
def test_the_simulated_kinesis_has_this_property(
    check: Check[[Streams, str]],
) -> None:
    async def run() -> None:
        await check.run(SimulatedStreams(loop), "orders")

    loop = VirtualLoop(Random(0))
    loop.run(run())
    assert not loop.failures
