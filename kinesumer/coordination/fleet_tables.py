"""Open the tables of a client in a KCL fleet, and keep what it has in them alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from kinesumer.coordination.fleet_member import FleetMember
from kinesumer.coordination.fleet_workers import FleetWorkers
from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.coordination.lease_table_store import LeaseTableStore
from kinesumer.ports import FleetTables, StateStore


@asynccontextmanager
async def open_fleet_store(
    member: FleetMember,
    held: HeldLeases,
    open_own: Callable[[], AbstractAsyncContextManager[StateStore]],
    open_tables: Callable[[], AbstractAsyncContextManager[FleetTables]],
) -> AsyncIterator[StateStore]:
    """Open the app's own table and those of the fleet.

    While they are open, renew the leases in ``held``, and write the client's entry.
    """
    async with open_own() as own, open_tables() as tables:
        store = LeaseTableStore(member, held, own, tables.leases)
        workers = FleetWorkers(member, store.view, tables)
        # If the renewals fail, the store fails, too: its client would lose leases.
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(store.keep_renewing()),
                tasks.create_task(workers.keep_writing()),
            ]
            try:
                yield store
            finally:
                for task in running:
                    task.cancel()
