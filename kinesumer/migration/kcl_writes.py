"""Leases as they are to be written for a KCL fleet that returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.aws.kcl_table import LeaseWrite
from kinesumer.migration.kcl import LEASE, OWNERS, PENDING, SHARD_END, Checkpoint

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesumer.aws.expressions import Attribute
    from kinesumer.migration.kcl import Lease, StreamId
    from kinesumer.model.rows import ShardRow


class LeaseChange(NamedTuple):
    """A shard's lease as it is (None: there is none), and its checkpoint to be."""

    shard_id: str
    before: Lease | None
    after: Checkpoint
    write: LeaseWrite

    @property
    def action(self) -> str:
        """Return create, change or keep; what is kept is freed of its owner, too."""
        if self.before is None:
            return "create"
        same = (self.before.checkpoint, self.before.sub) == self.after
        return "keep" if same else "change"


def changed(lease: Lease, after: Checkpoint, children: Collection[str]) -> LeaseChange:
    """Return how a lease gets a checkpoint and loses its owner.

    The counter goes on, so that a worker that still believes to own it can't renew it.
    """
    values = _checkpoint(after, lease.counter + 1, children)
    write = LeaseWrite(lease.key, values, OWNERS + PENDING, lease.counter)
    return LeaseChange(lease.shard_id, lease, after, write)


def created(
    row: ShardRow,
    after: Checkpoint,
    children: Collection[str],
    stream: StreamId | None,
    *,
    has_types: bool,
) -> LeaseChange:
    """Return the lease of a shard that the fleet hasn't met."""
    shard_id = row.key.shard_id
    values = _checkpoint(after, 0, children) | {
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "startingHashKey": {"S": str(row.first_hash)},
        "endingHashKey": {"S": str(row.last_hash)},
    }
    if row.parents:
        values["parentShardId"] = {"SS": sorted(row.parents)}
    if has_types:
        values["entityType"] = {"S": LEASE}
    if stream is None:
        return LeaseChange(shard_id, None, after, LeaseWrite(shard_id, values))
    values |= {"streamName": {"S": str(stream)}, "shardId": {"S": shard_id}}
    key = f"{stream}:{shard_id}"
    return LeaseChange(shard_id, None, after, LeaseWrite(key, values))


def _checkpoint(
    after: Checkpoint, counter: int, children: Collection[str]
) -> dict[str, Attribute]:
    values: dict[str, Attribute] = {
        "leaseCounter": {"N": str(counter)},
        "checkpoint": {"S": after.text},
        "checkpointSubSequenceNumber": {"N": str(after.sub)},
    }
    if after.text == SHARD_END and children:
        values["childShardIds"] = {"SS": sorted(children)}
    return values
