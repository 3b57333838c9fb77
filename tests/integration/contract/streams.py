"""The streams of the backends whose clock the contract suite can advance."""

from __future__ import annotations

import asyncio
from random import Random

from kinesumer.aws.stream_consumers import StreamConsumers
from kinesumer.core.pacing import CALL_SECONDS
from kinesumer.model.streams import Stream
from kinesumer.ports import StreamSource
from kinesumer.testing import EmbeddedAws
from kinesumer.testing.memory import MemoryKinesis
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.fan_out import (
    LinkedFanOutSource,
    Subscriptions,
    open_fan_out,
)
from kinesumer.testing.simulation.machine import SharedLink
from kinesumer.testing.simulation.network import NetworkConditions
from kinesumer.testing.trial.acceptance.resources import Streams


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
        source, network = self._kinesis.source(stream), NetworkConditions()
        return LinkedFanOutSource(
            self._machine, Random(0), source, network, self._line, Subscriptions()
        )

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


class EmbeddedStreams(Streams):
    """The streams of the embedded AWS. Its clock is advanced, so tests needn't wait."""

    aws: EmbeddedAws

    async def pause(self, seconds: float = CALL_SECONDS) -> None:
        self.aws.advance(seconds)

    async def pass_time(self, seconds: float) -> None:
        self.aws.advance(seconds)

    def now(self) -> float:
        return self.aws._state.clock.now()
