"""A simulated worker of the KCL 2, by its documented rules and observed behaviour.

Its lease taker, lease renewer and lease cleanup run on the second thread, and its shard
consumers on the first. Unlike the KCL, it reads single leases consistently, deletes
leases of finished shards after a minute, and has no periodic shard sync, which would
only act on gaps in the hash keys that last for six minutes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any

from kinesumer.config import Config
from kinesumer.errors import KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import Shard, Start
from kinesumer.ports import Compare, StreamSource, Write, WriteResult
from kinesumer.runtime.tasks import cancel_and_wait
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.invariants.base import ShardTrace, require_int
from kinesumer.testing.simulation.invariants.leases import LeaseChecker
from kinesumer.testing.simulation.lease_table import LinkedLeaseTable, create_lease
from kinesumer.testing.simulation.network import LinkedStore

# ``failoverTimeMillis`` of the fleet, and how the intervals follow from it.
FAILOVER_SECONDS = Config().kcl_failover_seconds
TAKER_SECONDS = 2 * FAILOVER_SECONDS
RENEWAL_SECONDS = FAILOVER_SECONDS / 3
# A lease that was not renewed for so long is taken, whatever the share is.
VERY_OLD_SECONDS = 3 * FAILOVER_SECONDS
MAX_STEALS = 1
DISPATCH_SECONDS = 1.0
# Longer than a request may be late, as the KCL's five minutes are.
CLEANUP_SECONDS = 70.0
# So many records at most are processed without a checkpoint.
MAX_UNCOMMITTED = 50


@dataclass(eq=False)
class HeldLease:
    """A lease that a worker has taken, and where its shard consumer is."""

    key: str
    row: Row  # as last written or read
    renewed_at: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    at: Position | Start | None = None  # None until the parents have ended
    uncommitted: int = 0
    ended_at: float | None = None

    @property
    def counter(self) -> int:
        """The number of writes to the lease."""
        return require_int(self.row["leaseCounter"])

    def key_of(self, shard_id: str) -> str:
        """Return the key of the lease of another shard of the stream."""
        prefix, colon, _ = self.key.rpartition(":")
        return f"{prefix}{colon}{shard_id}"


class KclWorker(Process):
    """A KCL worker that processes the shards of its leases."""

    is_member = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        world, link = self.world, (self.machine, self.random, self.store.network)
        self.table: LinkedLeaseTable = LinkedLeaseTable(
            LinkedStore(*link, world.leases, world.checker, self.heartbeat_thread)
        )
        assert isinstance(world.checker, LeaseChecker)
        self.checker: LeaseChecker = world.checker
        self.held: dict[str, HeldLease] = {}
        # The counter of each lease, and since when the taker has seen it.
        self._seen: dict[str, tuple[int, float]] = {}

    async def _consume(self) -> None:
        self.held, self._seen = {}, {}
        loop, thread = self.world.loop, self.heartbeat_thread
        coordination = [
            loop.spawn(thread, self._repeat(self._renew_all, RENEWAL_SECONDS)),
            loop.spawn(thread, self._repeat(self._take, TAKER_SECONDS)),
            loop.spawn(thread, self._repeat(self._clean_up, CLEANUP_SECONDS)),
        ]
        consumers: dict[HeldLease, asyncio.Task[None]] = {}
        try:
            while not self.leaving:
                for lease in self.held.values():
                    if lease not in consumers:
                        task = asyncio.create_task(self._consume_shard(lease))
                        consumers[lease] = task
                await asyncio.sleep(DISPATCH_SECONDS)
                for task in (*coordination, *consumers.values()):
                    if task.done():
                        task.result()  # raises the error of user code
            for lease in list(self.held.values()):
                with suppress(KinesumerError):
                    await self._checkpoint(lease)  # and keep the lease
        finally:
            await cancel_and_wait(*consumers.values())
            self.held.clear()
            for task in coordination:
                task.cancel()

    async def _repeat(self, act: Callable[[], Awaitable[None]], seconds: float) -> None:
        while True:
            with suppress(KinesumerError):
                await act()
            await asyncio.sleep(seconds)

    # --- the lease taker ---

    async def _take(self) -> None:
        leases = {str(row["leaseKey"]): row for row in await self.table.scan()}
        now, me = self.machine.now(), self.client_id
        self._seen = {key: self._observe(key, row, now) for key, row in leases.items()}
        ages = {key: now - since for key, (_, since) in self._seen.items()}
        free = [
            key
            for key, row in leases.items()
            if "leaseOwner" not in row or ages[key] > FAILOVER_SECONDS
        ]
        owners = {key: str(leases[key]["leaseOwner"]) for key in leases.keys() - free}
        loads = Counter({me: 0} | Counter(owners.values()))
        share = max(1, math.ceil(len(leases) / len(loads)))
        needed = share - loads[me]
        very_old = [key for key in free if ages[key] > VERY_OLD_SECONDS]
        chosen = very_old
        if not very_old and needed > 0:
            chosen = self.random.sample(free, min(needed, len(free)))
            if not free:
                chosen = self._choose_steals(owners, loads, share, needed)
        for key in chosen:
            with suppress(KinesumerError):
                await self._take_one(leases[key])

    def _observe(self, key: str, row: Row, now: float) -> tuple[int, float]:
        counter = require_int(row["leaseCounter"])
        before = self._seen.get(key)
        if before is None:  # a new lease without an owner is taken at once
            return counter, now if "leaseOwner" in row else -math.inf
        return before if before[0] == counter else (counter, now)

    def _choose_steals(
        self, owners: dict[str, str], loads: Counter[str], share: int, needed: int
    ) -> list[str]:
        worker, load = loads.most_common(1)[0]
        steals = min(needed, load - share)
        if needed > 1 and load == share:
            steals = 1
        theirs = sorted(key for key, owner in owners.items() if owner == worker)
        self.random.shuffle(theirs)
        return theirs[: max(0, min(steals, MAX_STEALS))]

    async def _take_one(self, row: Row) -> None:
        """Take a lease, or a lease that an earlier process with this id had."""
        values: dict[str, Value] = {"leaseOwner": self.client_id}
        if row.get("leaseOwner", self.client_id) != self.client_id:
            switches = require_int(row["ownerSwitchesSinceCheckpoint"])
            values["ownerSwitchesSinceCheckpoint"] = switches + 1
        written = await self._write(row, values)
        if written.applied and written.row is not None:
            key = str(row["leaseKey"])
            self.held[key] = HeldLease(key, written.row, self.machine.now())

    async def _write(self, row: Row, values: dict[str, Value]) -> WriteResult:
        """Write to a lease if its counter is as in ``row``."""
        counter = require_int(row["leaseCounter"])
        condition = Compare("leaseCounter", "=", counter)
        values = {**values, "leaseCounter": counter + 1}
        return await self.table.write(
            Write(Key(str(row["leaseKey"]), ""), condition, values)
        )

    # --- the lease renewer ---

    async def _renew_all(self) -> None:
        if not self._seen:  # renew the leases that a process with this id had before
            for row in await self.table.scan():
                if row.get("leaseOwner") == self.client_id:
                    await self._take_one(row)
        await asyncio.gather(*map(self._renew, list(self.held.values())))

    async def _renew(self, lease: HeldLease) -> None:
        if self.machine.now() - lease.renewed_at > FAILOVER_SECONDS:
            self._lose(lease)
            return
        with suppress(KinesumerError):
            await self._update(lease, {})

    async def _update(self, lease: HeldLease, values: dict[str, Value]) -> bool:
        """Write to a lease. A refused write means that the lease is lost."""
        async with lease.lock:
            if self.held.get(lease.key) is not lease:
                return False
            written = await self._write(lease.row, values)
            row = written.row
            if row is None or row.get("leaseOwner") != self.client_id:
                self._lose(lease)
            # Refused, it may be the next write of an attempt whose answer was lost.
            elif written.applied or row["leaseCounter"] == lease.counter + 1:
                lease.row, lease.renewed_at = row, self.machine.now()
            else:
                self._lose(lease)
            return written.applied

    def _lose(self, lease: HeldLease) -> None:
        if self.held.get(lease.key) is lease:
            del self.held[lease.key]

    # --- shard consumers ---

    async def _consume_shard(self, lease: HeldLease) -> None:
        """Process a shard until it has ended, or its lease is lost."""
        while self.held.get(lease.key) is lease:
            with suppress(KinesumerError):
                if await self._process(lease):
                    lease.ended_at = self.machine.now()
                    return
            await asyncio.sleep(DISPATCH_SECONDS)

    async def _process(self, lease: HeldLease) -> bool:
        """Process the next page of a shard; return whether the shard has ended."""
        trace, source = self.checker.lease_trace(lease.key), self._source(lease)
        if lease.at is None and not await self._initialize(lease):
            return lease.row["checkpoint"] == "SHARD_END"
        assert lease.at is not None
        if lease.uncommitted >= MAX_UNCOMMITTED:
            await self._checkpoint(lease)
            return False
        iterator = await source.get_iterator(trace.shard_id, lease.at)
        page = await source.get_records(iterator, 100)
        await self.user_code.apply_faults(self.world.loop.real)
        for record in page.records:
            for part in self._parts(trace, lease.at, record.sequence_number):
                if lease.uncommitted >= MAX_UNCOMMITTED:
                    return False  # until the checkpoint is stored
                self.checker.processed(lease.key, (record.sequence_number, part))
                lease.at = Position(record.sequence_number, part or 0)
                lease.uncommitted += 1
                if self.random.random() < 0.1:
                    await self._checkpoint(lease)
                    if self.held.get(lease.key) is not lease:
                        return False
        if page.next_iterator is None:
            return await self._end(lease, page.children)
        if lease.uncommitted and self.random.random() < 0.5:
            await self._checkpoint(lease)
        return False

    def _source(self, lease: HeldLease) -> StreamSource:
        name = self.checker.lease_places[lease.key][0].rpartition("/")[2]
        link = self.machine, self.random, self.kinesis_network
        return self.world.source(*link, name, self.line)

    def _parts(self, trace: ShardTrace, at: object, number: str) -> list[int | None]:
        """Return the parts of a record after the place of a shard consumer."""
        parts: list[int | None] = [None]
        if (number, None) not in trace.index:
            parts = [*takewhile(lambda part: (number, part) in trace.index, count())]
        if isinstance(at, Position) and at.sequence_number == number:
            done = at.sub_sequence_number or 0
            parts = [part for part in parts if (part or 0) > done]
        return parts

    async def _initialize(self, lease: HeldLease) -> bool:
        """Begin at the checkpoint if the parents have ended, or have no leases."""
        for parent in sorted(_texts(lease.row.get("parentShardId"))):
            row = await self.table.get(lease.key_of(parent))
            if row is not None and row["checkpoint"] != "SHARD_END":
                return False
        row = await self.table.get(lease.key)
        if row is None or row["checkpoint"] == "SHARD_END":
            lease.row = {**lease.row, "checkpoint": "SHARD_END"}
            return False
        self.checker.begins(lease.key)
        number, sub = str(row["checkpoint"]), row["checkpointSubSequenceNumber"]
        is_new = number == "TRIM_HORIZON"
        lease.at = Start.TRIM_HORIZON if is_new else Position(number, require_int(sub))
        return True

    async def _checkpoint(self, lease: HeldLease) -> None:
        """Store the place of the shard consumer."""
        if not isinstance(lease.at, Position) or not lease.uncommitted:
            return
        number, sub = lease.at
        values: dict[str, Value] = {"checkpoint": number}
        values |= {"checkpointSubSequenceNumber": sub or 0}
        before = lease.uncommitted
        if await self._update(lease, values | {"ownerSwitchesSinceCheckpoint": 0}):
            lease.uncommitted -= before

    async def _end(self, lease: HeldLease, children: Sequence[Shard]) -> bool:
        """Create the leases of the children, and store the end of the shard."""
        get = self.table.get
        for child in children:
            if await get(lease.key_of(child.shard_id)) is not None:
                continue
            parents = [await get(lease.key_of(name)) for name in child.parents]
            if None in parents:
                return False  # wait for the lease of a merge's other parent
            await self.table.write(create_lease(child, lease.key_of("")))
        if not children:
            return False
        ids = frozenset(child.shard_id for child in children)
        exists = Compare("leaseKey", "exists")
        key = Key(lease.key, "")
        await self.table.write(Write(key, exists, {"childShardIds": ids}))
        end: dict[str, Value] = {
            "checkpoint": "SHARD_END",
            "checkpointSubSequenceNumber": 0,
            "ownerSwitchesSinceCheckpoint": 0,
        }
        lease.uncommitted = 0  # if the answer is lost, only the end is stored again
        return await self._update(lease, end)

    # --- the lease cleanup ---

    async def _clean_up(self) -> None:
        """Delete the leases of finished shards whose children have begun."""
        now = self.machine.now()
        for lease in list(self.held.values()):
            if lease.ended_at is None or now - lease.ended_at < CLEANUP_SECONDS:
                continue
            row = await self.table.get(lease.key)
            children = _texts(row.get("childShardIds")) if row else ()
            keys = map(lease.key_of, sorted(children))
            found = [await self.table.get(key) for key in keys]
            if found and all(child and _has_begun(child) for child in found):
                exists = Compare("leaseKey", "exists")
                await self.table.write(Write(Key(lease.key, ""), exists, delete=True))
                self._lose(lease)


def _texts(value: Value | None) -> frozenset[str]:
    return value if isinstance(value, frozenset) else frozenset()


def _has_begun(row: Row) -> bool:
    return row["checkpoint"] != "TRIM_HORIZON"
