"""The lease table of a simulated KCL fleet, as one machine uses it over its link."""

from __future__ import annotations

from zlib import crc32

from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import Shard
from kinesumer.ports import Compare, Write, WriteResult
from kinesumer.testing.simulation.network import LinkedStore

TABLE = "lease"  # the partition of the store in memory that has all leases
# A scan is no snapshot: DynamoDB reads each page at its own time.
PAGES = 2


class LinkedLeaseTable:
    """The ports.LeaseTable that one machine uses over its link."""

    def __init__(self, store: LinkedStore) -> None:
        self.name: str = TABLE
        self._store = store

    async def scan(self, *, consistent: bool = False) -> list[Row]:
        """Return all leases, which are read page by page."""
        found: list[Row] = []
        for page in range(PAGES):
            rows = await self._store.query(TABLE, consistent=consistent)
            found += [_lease(row) for row in rows if _page(row) == page]
        return found

    async def get(self, lease_key: str) -> Row | None:
        """Return one lease, or None."""
        row = await self._store.get(Key(TABLE, lease_key))
        return None if row is None else _lease(row)

    async def write(self, write: Write) -> WriteResult:
        """Send one conditional write, which may be applied late, twice or never."""
        is_applied, row = await self._store.write(stored_write(write))
        return WriteResult(is_applied, None if row is None else _lease(row))


def stored_write(write: Write) -> Write:
    """Return a write to a lease as a write to the store in memory."""
    lease_key = write.key.pk
    if not write.delete:
        write = write._replace(set={**write.set, "leaseKey": lease_key})
    return write._replace(key=Key(TABLE, lease_key))


def _page(row: Row) -> int:
    return crc32(str(row["sk"]).encode()) % PAGES


def _lease(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("pk", "sk")}


def lease_prefix(arn: str, created_at: float) -> str:
    """Return how the keys of a stream's leases begin in a table of several streams."""
    account, name = arn.split(":")[4], arn.rpartition("/")[2]
    return f"{account}:{name}:{int(created_at)}:"


def create_lease(shard: Shard, prefix: str) -> Write:
    """Return the write by which KCL 2 creates a shard's lease, if there is none."""
    values: dict[str, Value] = {
        "leaseCounter": 0,
        "checkpoint": "TRIM_HORIZON",
        "checkpointSubSequenceNumber": 0,
        "ownerSwitchesSinceCheckpoint": 0,
        "startingHashKey": str(shard.first_hash),
        "endingHashKey": str(shard.last_hash),
    }
    if shard.parents:
        values["parentShardId"] = frozenset(shard.parents)
    if prefix:
        values |= {"streamName": prefix.rstrip(":"), "shardId": shard.shard_id}
    key = Key(prefix + shard.shard_id, "")
    return Write(key, Compare("leaseKey", "absent"), values)
