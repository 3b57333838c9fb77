"""A KCL fleet's leases as positions of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.migration.kcl import resume_point_of_lease
from kinesumer.migration.kcl_workers import (
    by_stream,
    read_leases,
    require_no_workers,
    streams_to_open,
)
from kinesumer.migration.plan import ResumePoint, plan_stream
from kinesumer.migration.takeover import ImportPlan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesumer.migration.kcl import Lease
    from kinesumer.migration.kcl_workers import Leases
    from kinesumer.migration.plan import StreamPlan
    from kinesumer.migration.takeover import Open
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext


class LeaseImport(NamedTuple):
    """A lease table to import from, and the streams to import."""

    table: Leases
    streams: Sequence[str] = ()
    """Names, ARNs or identifiers of leases. Empty: all streams."""
    region: str | None = None
    start_at: float | None = None
    """Start of leases without a position of their own, in seconds since 1970."""
    watch_seconds: float = 0.0
    """How long to watch the table for changes by workers."""

    async def draft(self, context: ClientContext, open_: Open) -> ImportPlan:
        """Return the plan of the import.

        Raise GroupBusyError while the fleet runs, ConfigurationError if the table isn't
        a lease table, and KinesumerError if a stream can't be read.
        """
        first = await read_leases(self.table)
        opened = streams_to_open(first.table, self.streams, self.region)
        seen = await require_no_workers(self.table, first, self.watch_seconds)
        leases = by_stream(seen.table.leases)
        plans = [
            await self._stream(context, await open_(name), leases[stream])
            for name, stream in opened.items()
        ]

        async def check() -> None:
            await require_no_workers(self.table, seen)

        return ImportPlan(f"lease table {self.table.name}", plans, check)

    async def _stream(
        self, context: ClientContext, source: StreamSource, leases: Sequence[Lease]
    ) -> StreamPlan:
        found = {
            lease.shard_id: resume_point_of_lease(lease, self.start_at)
            for lease in leases
        }
        marks = {shard_id: mark or ResumePoint() for shard_id, mark in found.items()}
        drafted = await plan_stream(context, source, marks)
        stream_changes = drafted.stream_changes
        drafted.notes.extend(_notes(leases, stream_changes.stream.created_at))
        drafted.problems.extend(
            f"{shard_id}: its lease is AT_TIMESTAMP and KCL for Java stores no time: "
            "say the fleet's with --start-at"
            for shard_id, mark in found.items()
            if mark is None
        )
        known = stream_changes.before is not None and stream_changes.before.baseline
        if known and not stream_changes.is_done:
            drafted.problems.append(
                f"app {context.app!r} has positions of its own in it: import under "
                "another app name, or delete these first with kinesumer reset"
            )
        return drafted


def _notes(leases: Sequence[Lease], created_at: float) -> Iterator[str]:
    stream = leases[0].stream
    if stream is not None and stream.epoch != int(created_at):
        yield (
            f"leases call it {stream}, but it was made at {int(created_at)}: positions "
            "were looked up and are the stream's, so the fleet's users gave that number"
        )
    if pending := sum(bool(lease.pending) for lease in leases):
        yield (
            f"{pending} leases have a pending checkpoint: it was never made, so "
            "records after the checkpoint come again"
        )
    latest = [lease.shard_id for lease in leases if lease.checkpoint == "LATEST"]
    if latest:
        yield (
            f"{', '.join(latest)}: never checkpointed since LATEST, so nobody knows "
            "what was read; without --start-at it begins now, after what has come "
            "since the fleet stopped"
        )
