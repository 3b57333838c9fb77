"""Test what a client does in the tables of a KCL fleet while they are open."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from random import Random

from kinesumer.coordination.fleet_tables import open_fleet_store
from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.ports import FleetTables
from kinesumer.testing.simulation.event_loop import VirtualLoop
from tests.support.fleet import FAILOVER_SECONDS, Fleet, MemoryLeaseTable
from tests.support.world import run


def test_leases_are_renewed_and_entries_written_while_the_store_is_open() -> None:
    async def check() -> None:
        fleet = Fleet(VirtualLoop(Random(0)), shards=1)
        member, held = fleet.member("c1"), HeldLeases(FAILOVER_SECONDS)
        workers = MemoryLeaseTable()
        workers.rows["w1"] = {"wid": "w1", "lut": int(fleet.clock.wall())}
        own = nullcontext(fleet.table)
        tables = nullcontext(FleetTables(fleet.leases, workers))
        before = len(asyncio.all_tasks())
        async with open_fleet_store(member, held, lambda: own, lambda: tables) as store:
            assert await store.verify() == "table-1"
            assert len(asyncio.all_tasks()) > before
            await asyncio.sleep(1)
        assert len(asyncio.all_tasks()) == before
        assert "c1" in workers.rows

    run(check())
