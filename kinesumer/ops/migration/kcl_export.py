"""Export a group's positions as leases of a KCL fleet."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.store_queries import read_all, read_streams
from kinesumer.core.lineage import find, is_past_end
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.rows import Key, ShardRow, Value
from kinesumer.model.streams import Shard
from kinesumer.ops.group.connect import require_no_clients
from kinesumer.ops.group.shard_reads import PacedReader, ShardSampler
from kinesumer.ops.group.verify import peek
from kinesumer.ops.migration.import_plan import (
    Open,
    ResumePoint,
    children_of,
    create_rows,
    require_complete,
)
from kinesumer.ops.migration.kcl import (
    Table,
    read_fleet,
    require_no_workers,
)
from kinesumer.ports import Compare, LeaseTable, StreamSource, Write
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire.conditions import applied
from kinesumer.wire.kcl_leases import (
    COUNTER,
    KEY,
    OWNERS,
    PENDING,
    SHARD_END,
    Lease,
    StreamId,
)
from kinesumer.wire.kcl_shards import new_lease
from kinesumer.wire.shard_writes import create_shard


class Checkpoint(NamedTuple):
    """The new checkpoint of a lease."""

    text: str
    sub: int = 0


def kcl_checkpoint(point: ResumePoint, parts: int | None) -> Checkpoint:
    """Return the checkpoint of a resume point.

    ``parts`` is the number of records in the position's aggregate. A start at a time
    becomes TRIM_HORIZON, since a lease can't store the time.
    """
    if point.ended:
        return Checkpoint(SHARD_END)
    if point.position is None:
        return Checkpoint("TRIM_HORIZON")
    number, sub = point.position
    if not parts:
        return Checkpoint(number)
    # If a whole aggregate was processed, KCL stores the index of its last user record.
    # With index 0 it would process the others again.
    return Checkpoint(number, parts - 1 if sub is None else min(sub, parts - 1))


class LeaseChange(NamedTuple):
    """A shard's current lease (None if it doesn't exist), and its new checkpoint."""

    before: Lease | None
    after: Checkpoint
    write: Write

    @property
    def action(self) -> str:
        """Return create, change or keep: what happens to the lease's checkpoint.

        The write also removes the owner, even if the checkpoint is kept.
        """
        if self.before is None:
            return "create"
        same = (self.before.checkpoint, self.before.sub) == self.after
        return "keep" if same else "change"


class StreamLeases(NamedTuple):
    """The changes of one stream's leases."""

    stream_arn: str
    changes: list[LeaseChange]
    notes: list[str]


class ExportPlan(NamedTuple):
    """The planned leases of each stream."""

    table: LeaseTable
    before: Table
    streams: list[StreamLeases]

    async def write(self, context: ClientContext) -> None:
        """Write the leases while no client or worker runs, and verify them.

        After a crash, repeat the export. Raise KinesumerError if a lease has changed.
        """
        await require_no_clients(context)
        await require_no_workers(self.table, self.before)
        writes = [change.write for stream in self.streams for change in stream.changes]
        for write in writes:
            # The write fails if the lease's counter has changed, as it has if a worker
            # has started meanwhile.
            if not (await self.table.write(write)).applied:
                raise KinesumerError(
                    f"lease {write.key.pk} has changed meanwhile: the fleet's workers "
                    "or others write to the table; stop them, and repeat the export"
                )
        found = {row[KEY]: row for row in await self.table.scan(consistent=True)}
        for write in writes:
            row = found.get(write.key.pk, {})
            if any(row.get(name) != value for name, value in write.set.items()):
                raise KinesumerError(
                    f"lease {write.key.pk} isn't what was written: others write to the "
                    "table; stop them, and repeat the export"
                )
        # Check again, since a client that started meanwhile would read the same shards
        # as the fleet.
        await require_no_clients(context)

    def report(self, *, written: bool) -> dict[str, Any]:
        """Return the report as JSON: see docs/migrating-from-kcl.md."""
        return {
            "lease_table": self.table.name,
            "written": written,
            "streams": [
                {
                    "stream_arn": stream.stream_arn,
                    "counts": dict(Counter(c.action for c in stream.changes)),
                    "leases": [_report(change) for change in stream.changes],
                    "notes": stream.notes,
                }
                for stream in self.streams
            ],
        }


def _report(change: LeaseChange) -> dict[str, Any]:
    before = change.before
    return {
        "lease_key": change.write.key.pk,
        "action": change.action,
        "before": before and {"checkpoint": before.checkpoint, "sub": before.sub},
        "after": {"checkpoint": change.after.text, "sub": change.after.sub},
    }


async def plan_kcl_export(
    context: ClientContext,
    open_: Open,
    table: LeaseTable,
    streams: Sequence[str] = (),
    *,
    region: str | None = None,
    watch_seconds: float = 0.0,
) -> ExportPlan:
    """Return the plan to write a group's positions into a lease table.

    Raise GroupBusyError while the fleet runs, and KinesumerError if the group has no
    positions in a stream of the table. Errors of reading a stream are passed on.
    """
    before, leases = await read_fleet(table, streams, region, watch_seconds)
    for lease in before.leases:
        if not lease.is_counted:
            raise ConfigurationError(
                f"row {escape_unprintable(lease.key)!r}: leaseCounter is not "
                "a number, so it does not show whether a worker is alive; delete the "
                "row, or correct it"
            )
    typed = before.has_types
    planned = [
        await _plan_leases(context, await open_(name), leases[name], has_types=typed)
        for name in leases
    ]
    return ExportPlan(table, before, planned)


async def _plan_leases(
    context: ClientContext,
    source: StreamSource,
    leases: Sequence[Lease],
    *,
    has_types: bool,
) -> StreamLeases:
    arn = await _group_arn(context, source)
    shards = await source.list_shards()
    require_complete(arn, shards)
    stored = await read_all(context, arn)
    points = {row.key.shard_id: _resume_point(row, shards) for row in stored}
    layout = create_rows(arn, shards, points)
    if layout.uncovered:
        raise KinesumerError(
            f"stream {arn}: the app has no rows of {', '.join(layout.uncovered)}; "
            "let a client run for a minute, stop it, and try again"
        )
    by_shard = {lease.shard_id: lease for lease in leases}
    children = children_of(shards)
    changes = []
    find_checkpoint = partial(_checkpoint, source, PacedReader())
    checkpoints = await asyncio.gather(*map(find_checkpoint, layout.rows))
    for row, after in zip(layout.rows, checkpoints, strict=True):
        shard_id = row.key.shard_id
        lease, born = by_shard.pop(shard_id, None), children.get(shard_id, ())
        if lease is not None:
            changes.append(_changed(lease, after, born))
        else:
            stream = leases[0].stream
            changes.append(_created(row, after, born, stream, has_types=has_types))
    # Kinesis no longer lists the shards of the remaining leases. Set these leases to
    # SHARD_END, since workers would otherwise never read the children.
    end = Checkpoint(SHARD_END)
    changes += [_changed(lease, end, ()) for lease in by_shard.values()]
    return StreamLeases(arn, changes, list(_export_notes(layout.rows)))


async def _group_arn(context: ClientContext, source: StreamSource) -> str:
    """Return the stream's ARN. Raise ConfigurationError if the group lacks it."""
    info = await source.describe()
    for row in await read_streams(context):
        if row.arn == info.arn and row.baseline:
            check_identity(row, info)
            return row.arn
    raise ConfigurationError(
        f"app {context.app!r} has no positions in {info.arn}, which the lease "
        "table is of; name the streams to hand over with --stream"
    )


async def _checkpoint(
    source: StreamSource, reader: PacedReader, row: ShardRow
) -> Checkpoint:
    parts = None
    if row.position is not None and not row.ended:
        # The position may be in an aggregate. Only reading the record shows this, and
        # the number of user records in it.
        sampler = ShardSampler(reader, source, row.key, time.time())
        parts = (await peek(sampler, row.position.sequence_number)).user_records
    return kcl_checkpoint(ResumePoint(row.position, row.start, row.ended), parts)


def _resume_point(row: ShardRow, shards: Sequence[Shard]) -> ResumePoint:
    """Return where reading of a shard resumes, with an end that the listing confirms.

    Earlier versions marked open shards as ended. A worker can't read from a position
    past the end of a closed shard.
    """
    shard = find(shards, row.key.shard_id)
    is_ended = row.ended
    if shard is not None:
        past = row.position is not None and is_past_end(shard, row.position)
        is_ended = shard.closed and (row.ended or past)
    return ResumePoint(row.position, row.start, is_ended)


def _export_notes(rows: Sequence[ShardRow]) -> Iterator[str]:
    for row in rows:
        if not row.ended and row.position is None and row.start.timestamp is not None:
            yield (
                f"{row.key.shard_id}: nothing was read since its start, and a lease "
                "has no place for that time: TRIM_HORIZON, so older records come again"
            )


def _changed(lease: Lease, after: Checkpoint, children: Collection[str]) -> LeaseChange:
    """Return the write that sets a lease's checkpoint and removes its owner."""
    # The counter is incremented, so that a worker that still believes it owns the lease
    # can't renew it.
    values = _checkpoint_values(after, lease.counter + 1, children)
    unchanged = Compare(COUNTER, "=", lease.counter)
    write = Write(Key(lease.key, ""), unchanged, values, OWNERS + PENDING)
    return LeaseChange(lease, after, write)


def _created(
    row: ShardRow,
    after: Checkpoint,
    children: Collection[str],
    stream: StreamId | None,
    *,
    has_types: bool,
) -> LeaseChange:
    """Return the write that creates a lease for a shard that has none."""
    created = applied(create_shard("", row._replace(position=None, ended=False)), None)
    assert created is not None
    shard_id = row.key.shard_id
    write = new_lease(created, stream, shard_id, has_types=has_types)
    values = {**write.set, **_checkpoint_values(after, 0, children)}
    return LeaseChange(None, after, write._replace(set=values))


def _checkpoint_values(
    after: Checkpoint, counter: int, children: Collection[str]
) -> dict[str, Value]:
    values: dict[str, Value] = {
        COUNTER: counter,
        "checkpoint": after.text,
        "checkpointSubSequenceNumber": after.sub,
    }
    if after.text == SHARD_END and children:
        values["childShardIds"] = frozenset(children)
    return values
