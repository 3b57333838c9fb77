"""A simulated client that is a worker of a KCL fleet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from kinesumer.coordination.connections import Connections, Identity, Ports
from kinesumer.coordination.fleet_member import FleetMember
from kinesumer.coordination.heartbeat import HeartbeatTask
from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.coordination.lease_table_store import LeaseTableStore
from kinesumer.ports import StateStore
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import IncidentLog
from kinesumer.testing.simulation.client import Process, on_thread
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.lease_table import TABLE, LinkedLeaseTable
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.network import LinkedStore


class FleetProcess(Process):
    """A client process with ``kcl_table``."""

    kcl_table = TABLE
    fleet_store: LeaseTableStore

    def _ports(self) -> Ports:
        base = super()._ports()

        @asynccontextmanager
        async def connect(
            identity: Identity, log: IncidentLog
        ) -> AsyncIterator[Connections]:
            world, thread = self.world, self.heartbeat_thread
            held, table = self._open_fleet_store(identity)
            self.fleet_store = table
            renewals = world.loop.spawn(thread, table.keep_renewing())
            renewals.add_done_callback(self._renewals_ended)
            store = cast("StateStore", ThreadStore(table, world.loop, thread))
            try:
                async with base.connect(identity, log) as connections:
                    yield replace(connections, store=store, row_leases=held)
            finally:
                renewals.cancel()

        return replace(base, connect=connect)

    def _open_fleet_store(
        self, identity: Identity
    ) -> tuple[HeldLeases, LeaseTableStore]:
        world, link = self.world, (self.machine, self.random, self.store.network)
        member = FleetMember(
            app=identity.app,
            client_id=identity.client_id,
            lease_table=str(identity.kcl_table),
            failover_seconds=identity.config.kcl_failover_seconds,
            clock=self.machine,
            random=self.random,
        )
        held = HeldLeases(member.failover_seconds)
        table = LinkedStore(*link, world.leases, world.checker, self.heartbeat_thread)
        store = LeaseTableStore(member, held, self.recorded, LinkedLeaseTable(table))
        return held, store

    def _renewals_ended(self, renewals: asyncio.Task[None]) -> None:
        if not renewals.cancelled() and (error := renewals.exception()):
            self.world.report_crash(self.name, error)

    def _new_heartbeat(self, context: ClientContext) -> HeartbeatTask:
        context = replace(context, store=self.fleet_store)
        return on_thread(self.heartbeat_thread, HeartbeatTask(context))


class ThreadStore:
    """A state store whose calls run on another thread, as those of a StoreThread."""

    def __init__(self, store: StateStore, loop: VirtualLoop, thread: Machine) -> None:
        self._store, self._loop, self._thread = store, loop, thread

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            work = method(*arguments, **options)
            return await self._loop.spawn(self._thread, work)

        return call
