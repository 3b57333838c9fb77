"""Replacements, in memory, for the state store and for Kinesis."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kinesumer.coordination.connections import Connections, Ports
from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.telemetry.api import Telemetry
from kinesumer.testing.simulation.memory_kinesis import MemoryKinesis, MemorySource
from kinesumer.testing.simulation.memory_store import MemoryStore, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from random import Random

    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import Stream
    from kinesumer.ports import Clock, StateStore, StreamSource
    from kinesumer.runtime.context import ClientContext

__all__ = ["MemoryKinesis", "MemorySource", "MemoryStore", "Usage", "memory_ports"]


def memory_ports(
    clock: Clock,
    random: Random,
    new_id: Callable[[], str],
    store: StateStore,
    open_source: Callable[[Stream], Awaitable[StreamSource]],
    *,
    heartbeat: Callable[[ClientContext], HeartbeatTask] = HeartbeatTask,
    telemetry: Telemetry | None = None,
    clients: ClientFactory | None = None,
) -> Ports:
    """Return the ports of a client that uses this store and these sources."""

    @asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Connections]:
        yield Connections(
            store=store,
            open_source=open_source,
            heartbeat=heartbeat,
            telemetry=telemetry or Telemetry(),
            clients=clients,
        )

    return Ports(clock=clock, random=random, new_id=new_id, connect=connect)
