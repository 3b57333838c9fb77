"""Run a client with handlers in real time, with AWS replaced by memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from kinesumer import Config, Kinesumer
from kinesumer.coordination.connections import Connections, Ports
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat import HeartbeatThread
from kinesumer.coordination.state_store import StoreThread
from kinesumer.model.streams import Start, Stream
from kinesumer.runtime.clock import SystemClock
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from tests.support.handler_client import TERMS, Letters
from tests.support.world import APP


class RealTimeClient(Kinesumer):
    """Runs ``run()`` in real time, with AWS replaced by memory."""

    def __init__(self, handler: Any, *, shards: int = 1, **options: Any) -> None:
        self._asked = {name: options.pop(name) for name in TERMS if name in options}
        self.letters = Letters()
        if "dead_letters" in self._asked:
            self._asked["dead_letters"] = self.letters.put
        clock, ids = SystemClock(), map(str, range(1000))
        self.memory, self.kinesis = MemoryStore(clock), MemoryKinesis(clock)
        self.kinesis.create_stream("orders", shards)
        times = {
            "heartbeat_interval_seconds": 0.1,
            "lease_duration_seconds": 5.0,
            "leader_interval_seconds": 0.05,
            "rebalance_delay_seconds": 0.0,
        }
        ports = Ports(
            clock=clock,
            random=Random(1),
            new_id=lambda: next(ids),
            connect=self._connect,
        )
        config = Config(**{**times, **options})
        super().__init__(APP, client_id="c1", config=config, _ports=ports)
        self._handler = handler

    @property
    def group(self) -> GroupConsumer:
        """What the client runs."""
        assert self._lifecycle.group is not None
        return self._lifecycle.group

    def put(self, *texts: str) -> None:
        """Put records."""
        for text in texts:
            self.kinesis.put("orders", text.encode(), text, 0)

    async def run_all(self) -> None:
        """Run until ``close``, in the client's block."""
        async with asyncio.timeout(20), self:
            await self.handle_all()

    async def handle_all(self) -> None:
        """Run until ``close``."""
        self._loop = asyncio.get_running_loop()
        start = Start.TRIM_HORIZON
        await self.run("orders", self._handler, start=start, **self._asked)

    def close(self) -> None:
        """End the run, from any thread."""
        self._loop.call_soon_threadsafe(self.group.delivery.close)

    @asynccontextmanager
    async def _connect(self, *_: object) -> AsyncIterator[Connections]:
        thread = StoreThread(self._open_store)
        try:
            yield Connections(
                store=await thread.start(),
                open_source=self._open_source,
                heartbeat=partial(HeartbeatThread, thread=thread),
            )
        finally:
            await thread.stop()

    async def _open_source(self, stream: Stream) -> Any:
        return self.kinesis.source(stream.name)

    @asynccontextmanager
    async def _open_store(self) -> AsyncIterator[MemoryStore]:
        yield self.memory


@pytest.fixture(autouse=True)
def nobody_else_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the leader make its first plan without waiting for other clients."""
    monkeypatch.setattr("kinesumer.coordination.leader.FIRST_PLAN_DELAY_SECONDS", 0.0)
