"""Test where a client writes its entry, and which KCL workers it finds."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.coordination.fleet_view import FleetView
from kinesumer.coordination.fleet_workers import (
    LOOK_SECONDS,
    WRITE_SECONDS,
    FleetWorkers,
)
from kinesumer.errors import ConfigurationError, StoreUnavailableError
from kinesumer.model.rows import Row
from kinesumer.ports import FleetTables
from kinesumer.testing.simulation.event_loop import VirtualLoop
from tests.support.fleet import FAILOVER_SECONDS, Fleet, MemoryLeaseTable, lease_row
from tests.support.world import APP


class Entries:
    """A client's entries, and the tables of its fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.clock = fleet.clock
        self.leases, self.workers = MemoryLeaseTable(), MemoryLeaseTable()
        self.view = FleetView(APP, "c1", FAILOVER_SECONDS, Random(0))
        tables = FleetTables(self.leases, self.workers)
        self.entries = FleetWorkers(fleet.member("c1"), self.view, tables)

    def see(self, *table: Row) -> None:
        self.view.observe_all(table, self.clock.now(), self.clock.now())

    def worker(self, key: str, name: str, age: float = 0.0) -> Row:
        updated_at = int(self.clock.wall() - age)
        return {key: name, "entityType": "WORKER_METRIC_STATS", "lut": updated_at}


@pytest.fixture
def world() -> Fleet:
    return Fleet(VirtualLoop(Random(0)), shards=1)


async def test_the_entry_is_where_living_workers_have_theirs(world: Fleet) -> None:
    fleet = Entries(world)
    await fleet.entries.write_once()
    assert not (fleet.leases.rows or fleet.workers.rows)
    fleet.see(fleet.worker("leaseKey", "w1"))
    await fleet.entries.write_once()
    assert fleet.leases.rows["c1"]["lut"] == int(fleet.clock.wall())
    assert not fleet.workers.rows
    fleet.workers.rows["w2"] = fleet.worker("wid", "w2")
    await fleet.entries.write_once()
    assert "c1" in fleet.workers.rows


async def test_a_fleet_whose_kcl_3_workers_are_gone_gets_no_entries(
    world: Fleet,
) -> None:
    fleet = Entries(world)
    fleet.see(fleet.worker("leaseKey", "w1", age=60))
    fleet.workers.rows["w2"] = fleet.worker("wid", "w2", age=60)
    await fleet.entries.write_once()
    assert not fleet.leases.rows
    assert [*fleet.workers.rows] == ["w2"]


async def test_workers_of_kcl_3_4_are_known_from_their_table(world: Fleet) -> None:
    fleet = Entries(world)
    fleet.workers.rows["w2"] = fleet.worker("wid", "w2")
    await fleet.entries.write_once()
    assert fleet.view.heir(fleet.clock.wall()) == "w2"


async def test_a_table_that_does_not_exist_is_seldom_looked_for(world: Fleet) -> None:
    fleet = Entries(world)
    fleet.workers.scan_errors = [ConfigurationError("no such table")]
    fleet.workers.rows["w2"] = fleet.worker("wid", "w2", age=-LOOK_SECONDS)
    writing = asyncio.create_task(fleet.entries.keep_writing())
    await asyncio.sleep(LOOK_SECONDS - WRITE_SECONDS)
    assert fleet.workers.scans == 0
    await asyncio.sleep(2 * WRITE_SECONDS)
    assert fleet.workers.scans >= 1
    assert "c1" in fleet.workers.rows
    writing.cancel()


async def test_a_failed_entry_is_logged_and_written_again(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Entries(world)
    fleet.see(fleet.worker("leaseKey", "w1"))
    fleet.leases.errors = [StoreUnavailableError("slow")] * 2
    writing = asyncio.create_task(fleet.entries.keep_writing())
    await asyncio.sleep(2.5 * WRITE_SECONDS)
    assert "c1" in fleet.leases.rows
    assert caplog.text.count("can't write the entry") == 1
    writing.cancel()


async def test_a_client_that_kcl_s_workers_elect_says_that_it_holds_them_up(
    world: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Entries(world)
    mode: Row = {
        "leaseKey": "Migration3.0",
        "entityType": "CLIENT_VERSION_MIGRATION",
        "cv": "CLIENT_VERSION_UPGRADE_FROM_2X",
    }
    leases = [lease_row(f"shard-{owner}", leaseOwner=owner) for owner in ("c1", "w1")]
    table = [mode, *leases, fleet.worker("leaseKey", "w1", age=-LOOK_SECONDS)]
    fleet.see(mode, *leases)
    writing = asyncio.create_task(fleet.entries.keep_writing())
    await asyncio.sleep(2.5 * WRITE_SECONDS)
    assert "elect" not in caplog.text
    fleet.see(*table)
    await asyncio.sleep(2.5 * WRITE_SECONDS)
    assert caplog.text.count("elect client c1 as their leader") == 1
    caplog.clear()
    fleet.see(*table, lease_row("shard-w2", leaseOwner="w2"))
    await asyncio.sleep(LOOK_SECONDS)
    assert "elect" not in caplog.text
    writing.cancel()
