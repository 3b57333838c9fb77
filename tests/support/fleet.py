"""A KCL fleet in memory: its lease table, and workers that follow KCL's rules."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from random import Random

from kinesumer.core.lease_share import fair_share
from kinesumer.model.rows import Row
from kinesumer.ports import Clock, Write, WriteResult
from kinesumer.wire.conditions import holds

FAILOVER_SECONDS = 10.0


class MemoryLeaseTable:
    """A ``ports.LeaseTable`` in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.scans = 0
        self.errors: list[Exception] = []  # raised by the next writes
        self.late_errors: list[Exception] = []  # raised after the next writes

    async def scan(self, *, consistent: bool = False) -> list[Row]:
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
        self.rows[key] = after
        return WriteResult(True, deepcopy(after))


def lease_row(shard_id: str, **changes: object) -> Row:
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
    return row | changes  # type: ignore[operator]


class KclWorker:
    """A worker of KCL 2, as its DynamoDBLeaseTaker and DynamoDBLeaseRenewer act.

    It reads no records. Its renewer runs three times in the failover time, and its
    taker once in two failover times.
    """

    def __init__(
        self, name: str, table: MemoryLeaseTable, clock: Clock, random: Random
    ) -> None:
        self.name, self.held = name, dict[str, int]()  # the counters by lease
        self.losses = 0
        self._table, self._clock, self._random = table, clock, random
        self._seen: dict[str, tuple[int, float]] = {}

    async def run(self) -> None:
        """Renew and take leases until cancelled."""
        taken_at = -1e9
        while True:
            self.renew()
            if self._clock.now() - taken_at >= 2 * FAILOVER_SECONDS:
                taken_at = self._clock.now()
                self.take()
            await asyncio.sleep(FAILOVER_SECONDS / 3)

    def renew(self) -> None:
        for key, counter in list(self.held.items()):
            row = self._table.rows.get(key)
            if row is None or row["leaseCounter"] != counter:
                del self.held[key]
                self.losses += 1
            else:
                row["leaseCounter"] = self.held[key] = counter + 1

    def checkpoint(self, key: str, number: str, sub: int = 0) -> bool:
        """Store a checkpoint; return whether the worker still had the lease."""
        row = self._table.rows[key]
        if row["leaseCounter"] != self.held.get(key):
            return False
        row["leaseCounter"] = self.held[key] = self.held[key] + 1
        row["checkpoint"], row["checkpointSubSequenceNumber"] = number, sub
        row["ownerSwitchesSinceCheckpoint"] = 0
        return True

    def take(self) -> None:
        now, free, counts = self._clock.now(), [], {self.name: 0}
        for key, row in self._table.rows.items():
            counter, owner = row["leaseCounter"], row.get("leaseOwner")
            assert isinstance(counter, int)
            if key not in self._seen or self._seen[key][0] != counter:
                since = now if owner or key in self._seen else -1e9
                self._seen[key] = counter, since
            expired = now - self._seen[key][1] > FAILOVER_SECONDS
            if owner is None or expired:
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
        row = self._table.rows[key]
        counter = row["leaseCounter"]
        assert isinstance(counter, int)
        row["leaseOwner"], row["leaseCounter"] = self.name, counter + 1
        row.pop("checkpointOwner", None)
        self.held[key] = counter + 1
