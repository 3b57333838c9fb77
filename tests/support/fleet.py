"""A KCL fleet in memory: its lease table, and workers that follow KCL's rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

from kinesumer.coordination.connections import Connections, Identity, Ports
from kinesumer.coordination.fleet_member import FleetMember
from kinesumer.coordination.lease_renewal import HeldLeases
from kinesumer.coordination.lease_table_store import LeaseTableStore
from kinesumer.core.lease_share import fair_share
from kinesumer.model.positions import Position
from kinesumer.model.rows import Row, Value
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Clock, Write, WriteResult
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.machine import Machine
from kinesumer.wire.conditions import holds
from tests.support.world import APP, World

FAILOVER_SECONDS = 10.0
TABLE = "orders-consumer"
LONG_AGO = -1e9


class MemoryLeaseTable:
    """A ``ports.LeaseTable`` in memory."""

    def __init__(self) -> None:
        self.name: str = TABLE
        self.rows: dict[str, Row] = {}
        self.scans = 0
        self.errors: list[Exception] = []  # raised instead of the next writes
        self.late_errors: list[Exception] = []  # raised after the next writes
        self.scan_errors: list[Exception] = []  # raised instead of the next scans
        self.is_checked = False  # whether leases must only go forward

    async def scan(self, *, consistent: bool = False) -> list[Row]:
        await asyncio.sleep(0.01)
        if self.scan_errors:
            raise self.scan_errors.pop()
        self.scans += 1
        return deepcopy(list(self.rows.values()))

    async def get(self, lease_key: str) -> Row | None:
        return deepcopy(self.rows.get(lease_key))

    async def write(self, write: Write) -> WriteResult:
        if self.errors:
            raise self.errors.pop()
        result = self.write_now(write)
        if self.late_errors:
            raise self.late_errors.pop()
        return result

    def write_now(self, write: Write) -> WriteResult:
        key = write.key.pk
        before = self.rows.get(key)
        if not holds(write.condition, before):
            return WriteResult(False, deepcopy(before))
        if write.delete:
            del self.rows[key]
            return WriteResult(True, None)
        after = {"leaseKey": key, **(before or {}), **write.set}
        for name in write.remove:
            after.pop(name, None)
        self.store(key, after)
        return WriteResult(True, deepcopy(after))

    def store(self, key: str, after: Row) -> None:
        """Store a row, and check that a lease only goes forward."""
        before = self.rows.get(key)
        self.rows[key] = after
        if before is None or not self.is_checked:
            return
        counters = [number(row["leaseCounter"]) for row in (before, after)]
        # Only hash keys are added without a new counter.
        assert counters[0] < counters[1] or "endingHashKey" not in before
        assert place_of(after) >= place_of(before), (before, after)
        epochs = [number(row.get("kinesumer_epoch", 0)) for row in (before, after)]
        assert epochs[0] <= epochs[1]

    def owners(self) -> dict[str, str]:
        """Return the owner of each lease that isn't read to its end."""
        return {
            key: str(row.get("leaseOwner", ""))
            for key, row in self.rows.items()
            if row["checkpoint"] != "SHARD_END"
        }

    def count(self, owner: str) -> int:
        return list(self.owners().values()).count(owner)


def place_of(row: Row) -> tuple[int, int]:
    """Return how far a shard was read, as numbers that grow."""
    checkpoint = str(row["checkpoint"])
    if checkpoint.isdigit():
        return int(checkpoint), number(row["checkpointSubSequenceNumber"])
    return (10**60 if checkpoint == "SHARD_END" else 0), 0


def lease_row(shard_id: str, **changes: Value) -> Row:
    """Return a lease as KCL 2 creates it, for the whole range of hash keys."""
    row: Row = {
        "leaseKey": shard_id,
        "leaseCounter": 0,
        "checkpoint": "TRIM_HORIZON",
        "checkpointSubSequenceNumber": 0,
        "ownerSwitchesSinceCheckpoint": 0,
        "startingHashKey": "0",
        "endingHashKey": str(2**128 - 1),
    }
    return row | changes


def lease_of(shard: Shard) -> Row:
    """Return the lease that KCL 2 creates for a shard."""
    row = lease_row(
        shard.shard_id,
        startingHashKey=str(shard.first_hash),
        endingHashKey=str(shard.last_hash),
    )
    return row | ({"parentShardId": frozenset(shard.parents)} if shard.parents else {})


def number(value: Value) -> int:
    assert isinstance(value, int)
    return value


class Fleet(World):
    """A world in which clients are workers of a KCL fleet, beside KCL's workers."""

    def __init__(self, loop: VirtualLoop, shards: int = 8) -> None:
        super().__init__(loop)
        self.leases = MemoryLeaseTable()
        self.leases.is_checked = True
        self.workers: list[KclWorker] = []
        self.kinesis.create_stream("orders", shards)
        for shard in self.kinesis.source("orders").list_shards_now():
            self.leases.rows[shard.shard_id] = lease_of(shard)
        self.put_count = 0
        self.joins = True  # whether new clients have ``kcl_table``

    def ports(self, clock: Clock | None = None, **options: Any) -> Ports:
        base, used = super().ports(clock, **options), clock or self.clock
        if not self.joins:
            return base
        assert isinstance(used, Machine)

        @asynccontextmanager
        async def connect(identity: Identity, log: Any) -> AsyncIterator[Connections]:
            async with base.connect(identity, log) as connections:
                member = self.member(identity.client_id, used)
                held = HeldLeases(member.failover_seconds)
                store = LeaseTableStore(member, held, connections.store, self.leases)
                # A machine that is killed closes nothing.
                self.loop.spawn(used, store.keep_renewing())
                yield replace(connections, store=store, row_leases=held)

        return replace(base, connect=connect)

    def member(self, client_id: str, clock: Clock | None = None) -> FleetMember:
        return FleetMember(
            app=APP,
            client_id=client_id,
            lease_table=TABLE,
            failover_seconds=FAILOVER_SECONDS,
            clock=clock or self.clock,
            random=Random(1),
        )

    def store(self, client_id: str = "c1") -> tuple[LeaseTableStore, HeldLeases]:
        """Return the store of a client that doesn't run."""
        held = HeldLeases(FAILOVER_SECONDS)
        member = self.member(client_id)
        return LeaseTableStore(member, held, self.table, self.leases), held

    def worker(self, name: str) -> KclWorker:
        """Start a KCL worker on its own machine."""
        worker = KclWorker(name, self)
        self.workers.append(worker)
        return worker

    async def produce(self, seconds: float) -> None:
        """Put a record into each of eight ranges of hash keys, five times a second."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            for part in range(8):
                self.put(f"r{self.put_count}", hash_key=part * 2**125)
                self.put_count += 1
            await asyncio.sleep(0.2)

    def open_shards(self) -> list[str]:
        """Return the ids of the open shards in the order of their hash keys."""
        found = self.kinesis.stream("orders").open
        return [shard.shard_id for shard in sorted(found, key=lambda s: s.first_hash)]

    @property
    def produced(self) -> set[str]:
        return {f"r{count}" for count in range(self.put_count)}


class KclWorker:
    """A worker of KCL 2, as its lease taker, lease renewer and shutdown task act.

    Its renewer runs three times in the failover time, and its taker once in two such
    times. It reads the shards of its leases once a second, and then checkpoints.
    """

    def __init__(self, name: str, fleet: Fleet) -> None:
        self.name, self.held = name, dict[str, int]()  # the counters by lease
        self.seen: list[str] = []
        self.losses: list[str] = []
        self._fleet, self._table = fleet, fleet.leases
        self._random = Random(name)
        self._known: dict[str, tuple[int, float]] = {}
        self._renewed_at: dict[str, float] = {}
        self.machine = fleet.loop.machine(name)
        for work in (self._take_leases(), self._renew_leases(), self._read_shards()):
            fleet.loop.spawn(self.machine, work)

    def kill(self) -> None:
        self.machine.kill()

    async def _take_leases(self) -> None:
        while True:
            self.take()
            await asyncio.sleep(2 * FAILOVER_SECONDS)

    async def _renew_leases(self) -> None:
        while True:
            self.renew()
            await asyncio.sleep(FAILOVER_SECONDS / 3)

    async def _read_shards(self) -> None:
        source = self._fleet.kinesis.source("orders")
        while True:
            for key in list(self.held):
                await self._read(source, key)
            await asyncio.sleep(1.0)

    async def _read(self, source: Any, key: str) -> None:
        row = self._table.rows[key]
        parents = row.get("parentShardId", frozenset())
        assert isinstance(parents, frozenset)
        leases = [self._table.rows[p] for p in parents if p in self._table.rows]
        waits = any(lease["checkpoint"] != "SHARD_END" for lease in leases)
        if row["checkpoint"] == "SHARD_END" or waits:
            return
        after: Position | Start = Start.TRIM_HORIZON
        if row["checkpoint"] != "TRIM_HORIZON":
            after = Position(str(row["checkpoint"]))
        page = await source.get_records(await source.get_iterator(key, after), 10_000)
        for record in page.records:
            self.seen.append(record.data.decode())
        if page.records:
            self.checkpoint(key, page.records[-1].sequence_number)
        elif page.next_iterator is None:
            for shard in page.children:
                self._table.rows.setdefault(shard.shard_id, lease_of(shard))
            self.checkpoint(key, "SHARD_END")

    def renew(self) -> None:
        now = self._fleet.clock.now()
        for key, counter in list(self.held.items()):
            row = self._table.rows.get(key)
            is_expired = now - self._renewed_at[key] > FAILOVER_SECONDS
            if is_expired or row is None or row["leaseCounter"] != counter:
                self._lose(key)
            else:
                self._write(key, row)

    def checkpoint(self, key: str, sequence_number: str, sub: int = 0) -> None:
        """Store a checkpoint if the worker still has the lease."""
        row = self._table.rows.get(key)
        if row is None or row["leaseCounter"] != self.held.get(key):
            self._lose(key)
            return
        values: Row = {
            "checkpoint": sequence_number,
            "checkpointSubSequenceNumber": sub,
        }
        self._write(key, row | values | {"ownerSwitchesSinceCheckpoint": 0})

    def take(self) -> None:
        now, free, counts = self._fleet.clock.now(), [], {self.name: 0}
        for key, row in self._table.rows.items():
            counter, owner = number(row["leaseCounter"]), row.get("leaseOwner")
            if key not in self._known or self._known[key][0] != counter:
                since = now if owner or key in self._known else LONG_AGO
                self._known[key] = counter, since
            if owner is None or now - self._known[key][1] > FAILOVER_SECONDS:
                free.append(key)
            else:
                counts[str(owner)] = counts.get(str(owner), 0) + 1
        share = fair_share(len(self._table.rows), len(counts))
        needed = share - counts[self.name]
        self._random.shuffle(free)
        for key in free[: max(0, needed)]:
            self._take(key)
        most = max(counts, key=lambda name: counts[name])
        over = counts[most] - share
        if not free and needed > 0 and (over > 0 or (over == 0 and needed > 1)):
            theirs = [
                key
                for key, row in self._table.rows.items()
                if row.get("leaseOwner") == most
            ]
            self._take(self._random.choice(theirs))

    def _take(self, key: str) -> None:
        row = self._table.rows[key] | {"leaseOwner": self.name}
        row.pop("checkpointOwner", None)
        self._write(key, row)

    def _write(self, key: str, row: Row) -> None:
        self.held[key] = number(row["leaseCounter"]) + 1
        self._table.store(key, row | {"leaseCounter": self.held[key]})
        self._renewed_at[key] = self._fleet.clock.now()

    def _lose(self, key: str) -> None:
        if self.held.pop(key, None) is not None:
            self.losses.append(key)
