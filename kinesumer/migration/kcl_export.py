"""Exports a group's positions as leases, so that a KCL fleet can resume."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin.context import require_no_clients
from kinesumer.admin.sampling import peek
from kinesumer.admin.shard_reads import PacedReader
from kinesumer.aws.kcl_table import LeaseWrite
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.store_queries import read_all, read_streams
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.migration.kcl import (
    LEASE,
    OWNERS,
    PENDING,
    SHARD_END,
    Checkpoint,
    kcl_checkpoint,
)
from kinesumer.migration.kcl_workers import (
    by_stream,
    read_leases,
    require_no_workers,
    streams_to_open,
)
from kinesumer.migration.plan import (
    children_of,
    create_rows,
    resume_point_of_row,
)
from kinesumer.runtime.text import escape_unprintable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kinesumer.aws.expressions import Attribute
    from kinesumer.migration.kcl import Lease, StreamId, Table
    from kinesumer.migration.kcl_workers import Leases, LeaseSnapshot
    from kinesumer.migration.takeover import Open
    from kinesumer.model.rows import ShardRow
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext


VERSION = 1


class StreamLeases(NamedTuple):
    """The changes of one stream's leases."""

    stream_arn: str
    changes: list[LeaseChange]
    notes: list[str]


class LeaseExport(NamedTuple):
    """A lease table to export to, and the streams to export."""

    table: Leases
    streams: Sequence[str] = ()
    region: str | None = None
    watch_seconds: float = 0.0

    async def draft(self, context: ClientContext, open_: Open) -> ExportPlan:
        """Return the plan of the new leases.

        Raise GroupBusyError while the fleet runs, and KinesumerError if the group
        doesn't have a stream of the table. Errors of reading a stream are passed on.
        """
        first = await read_leases(self.table)
        opened = streams_to_open(first.table, self.streams, self.region)
        seen = await require_no_workers(self.table, first, self.watch_seconds)
        _check_counters(seen.table)
        leases = by_stream(seen.table.leases)
        found = [
            await _Stream(context, await open_(name), stream, leases[stream]).draft(
                has_types=seen.table.has_types
            )
            for name, stream in opened.items()
        ]
        return ExportPlan(self.table, seen, found)


def _check_counters(table: Table) -> None:
    for lease in table.leases:
        if not lease.is_counted:
            raise ConfigurationError(
                f"row {escape_unprintable(lease.key)!r}: leaseCounter is not "
                "a number, so it does not show whether a worker is alive; delete the "
                "row, or correct it"
            )


class ExportPlan(NamedTuple):
    """The planned leases of each stream."""

    table: Leases
    seen: LeaseSnapshot
    streams: list[StreamLeases]

    async def write(self, context: ClientContext) -> None:
        """Write the leases while no client or worker runs, and verify them.

        It can be repeated after a crash. Raise KinesumerError if a lease has changed.
        """
        await require_no_clients(context)
        await require_no_workers(self.table, self.seen)
        changes = [change for stream in self.streams for change in stream.changes]
        for change in changes:
            if not await self.table.write(change.write):
                raise KinesumerError(
                    f"lease {change.write.key} has changed meanwhile: the fleet's "
                    "workers, or somebody else, write there; stop them and repeat it"
                )
        items = {item["leaseKey"]["S"]: item for item in await self.table.scan()}
        for change in changes:
            found = items.get(change.write.key, {})
            if any(found.get(name) != value for name, value in _plain(change).items()):
                raise KinesumerError(
                    f"lease {change.write.key} isn't what was written: somebody else "
                    "writes there; stop them and repeat it"
                )
        await require_no_clients(context)

    def report(self, *, written: bool) -> dict[str, Any]:
        """Return the report as JSON: see docs/migrating-from-kcl.md."""
        return {
            "version": VERSION,
            "lease_table": self.table.name,
            "written": written,
            "streams": [
                {
                    "stream_arn": stream.stream_arn,
                    "counts": dict(Counter(c.action for c in stream.changes)),
                    "leases": [_change(change) for change in stream.changes],
                    "notes": stream.notes,
                }
                for stream in self.streams
            ],
        }


def _plain(change: LeaseChange) -> dict[str, object]:
    return {name: v for name, v in change.write.set.items() if "SS" not in v}


def _change(change: LeaseChange) -> dict[str, Any]:
    before = change.before
    return {
        "lease_key": change.write.key,
        "action": change.action,
        "before": before and {"checkpoint": before.checkpoint, "sub": before.sub},
        "after": {"checkpoint": change.after.text, "sub": change.after.sub},
    }


class _Stream(NamedTuple):
    context: ClientContext
    source: StreamSource
    stream: StreamId | None
    leases: Sequence[Lease]

    async def draft(self, *, has_types: bool) -> StreamLeases:
        arn = await self._known()
        shards = await self.source.list_shards()
        stored = await read_all(self.context, arn)
        marks = {row.key.shard_id: resume_point_of_row(row) for row in stored}
        layout = create_rows(arn, shards, marks)
        if layout.uncovered:
            raise KinesumerError(
                f"stream {arn}: the app has no rows of {', '.join(layout.uncovered)}; "
                "let a client run for a minute, stop it, and try again"
            )
        known = {lease.shard_id: lease for lease in self.leases}
        born = children_of(shards)
        changes = []
        for row, after in await self._checkpoints(layout.rows):
            lease = known.pop(row.key.shard_id, None)
            children = born.get(row.key.shard_id, ())
            if lease is None:
                new = created(row, after, children, self.stream, has_types=has_types)
                changes.append(new)
            else:
                changes.append(changed(lease, after, children))
        # Kinesis has forgotten the others: their children would wait for ever.
        end = Checkpoint(SHARD_END)
        changes += [changed(lease, end, ()) for lease in known.values()]
        return StreamLeases(arn, changes, list(_notes(layout.rows)))

    async def _known(self) -> str:
        """Return the stream's ARN, if it is one of the group's."""
        info = await self.source.describe()
        for row in await read_streams(self.context):
            if row.arn == info.arn and row.baseline:
                check_identity(row, info)
                return row.arn
        raise ConfigurationError(
            f"app {self.context.app!r} has no positions in {info.arn}, which the lease "
            "table is of; name the streams to hand over with --stream"
        )

    async def _checkpoints(
        self, rows: Sequence[ShardRow]
    ) -> list[tuple[ShardRow, Checkpoint]]:
        asking = PacedReader()

        async def one(row: ShardRow) -> tuple[ShardRow, Checkpoint]:
            parts = None
            if row.position is not None and not row.ended:
                number = row.position.sequence_number
                parts = (await peek(asking, self.source, row.key, number)).user_records
            return row, kcl_checkpoint(resume_point_of_row(row), parts)

        return await asyncio.gather(*(one(row) for row in rows))


def _notes(rows: Sequence[ShardRow]) -> Iterator[str]:
    for row in rows:
        if not row.ended and row.position is None and row.start.timestamp is not None:
            yield (
                f"{row.key.shard_id}: nothing was read since its start, and a lease "
                "has no place for that time: TRIM_HORIZON, so older records come again"
            )


class LeaseChange(NamedTuple):
    """A shard's current lease (None: it doesn't exist), and its new checkpoint."""

    shard_id: str
    before: Lease | None
    after: Checkpoint
    write: LeaseWrite

    @property
    def action(self) -> str:
        """Return create, change or keep. A kept lease loses its owner, too."""
        if self.before is None:
            return "create"
        same = (self.before.checkpoint, self.before.sub) == self.after
        return "keep" if same else "change"


def changed(lease: Lease, after: Checkpoint, children: Collection[str]) -> LeaseChange:
    """Return the write that sets a lease's checkpoint and removes its owner.

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
    """Return the write that creates the lease of a shard new to the fleet."""
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
