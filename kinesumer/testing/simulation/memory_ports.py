"""The ports of a client that uses memory in place of AWS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from kinesumer.aws.session import ClientFactory
from kinesumer.coordination.connections import Connections, Ports
from kinesumer.coordination.heartbeat import HeartbeatTask
from kinesumer.model.streams import Stream
from kinesumer.ports import Clock, StateStore, StreamSource
from kinesumer.runtime.context import ClientContext
from kinesumer.telemetry.api import Telemetry
from kinesumer.telemetry.history import History


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
    history: History | None = None,
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

    return Ports(
        clock=clock, random=random, new_id=new_id, connect=connect, history=history
    )
