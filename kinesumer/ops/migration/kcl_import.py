"""Import a KCL fleet's leases as positions of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ops.migration.apply import ImportPlan
from kinesumer.ops.migration.kcl import (
    read_fleet,
    require_no_workers,
    resume_point_of_lease,
)
from kinesumer.ops.migration.plan import ResumePoint, plan_stream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesumer.ops.migration.apply import Open
    from kinesumer.ops.migration.kcl import Lease, Leases
    from kinesumer.ops.migration.plan import StreamPlan
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext


async def plan_kcl_import(
    context: ClientContext,
    open_: Open,
    table: Leases,
    streams: Sequence[str] = (),
    *,
    region: str | None = None,
    start_at: float | None = None,
    watch_seconds: float = 0.0,
) -> ImportPlan:
    """Return the plan to import a lease table.

    ``streams`` are names, ARNs or identifiers in the leases. If it is empty, all
    streams are imported. ``start_at``, in seconds since 1970, is the start of shards
    whose lease has no position. Raise GroupBusyError if the table changes within
    ``watch_seconds``, ConfigurationError if it isn't a lease table, and KinesumerError
    if a stream can't be read.
    """
    before, leases = await read_fleet(table, streams, region, watch_seconds)
    plans = [
        await _plan_stream(context, await open_(name), stream_leases, start_at)
        for name, stream_leases in leases.items()
    ]

    async def check() -> None:
        await require_no_workers(table, before)

    return ImportPlan(f"lease table {table.name}", plans, check)


async def _plan_stream(
    context: ClientContext,
    source: StreamSource,
    leases: Sequence[Lease],
    start_at: float | None,
) -> StreamPlan:
    points = {x.shard_id: resume_point_of_lease(x, start_at) for x in leases}
    plan = await plan_stream(
        context, source, {id_: point or ResumePoint() for id_, point in points.items()}
    )
    plan.notes.extend(_notes(leases, plan.stream.created_at))
    plan.problems.extend(
        f"{shard_id}: its lease is AT_TIMESTAMP and KCL for Java stores no time: "
        "give the fleet's start with --start-at"
        for shard_id, point in points.items()
        if point is None
    )
    has_positions = plan.before is not None and plan.before.baseline
    if has_positions and not plan.is_done:
        plan.problems.append(
            f"app {context.app!r} has positions of its own in it: import under "
            "another app name, or delete these first with kinesumer reset"
        )
    return plan


def _notes(leases: Sequence[Lease], created_at: float) -> Iterator[str]:
    stream = leases[0].stream
    if stream is not None and stream.epoch != int(created_at):
        yield (
            f"leases call it {stream}, but it was created at {int(created_at)}: "
            "Kinesis knows the positions, so the fleet's users chose that number"
        )
    if pending := sum(bool(lease.pending) for lease in leases):
        yield (
            f"{pending} leases have a pending checkpoint: it was never made, so "
            "records after the checkpoint come again"
        )
    latest = [lease.shard_id for lease in leases if lease.checkpoint == "LATEST"]
    if latest:
        yield (
            f"{', '.join(latest)}: never checkpointed since LATEST, so it isn't known "
            "what was read; without --start-at reading begins now, and skips what "
            "arrived since the fleet stopped"
        )
