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
    """What to take out of a lease table."""

    table: Leases
    streams: Sequence[str] = ()
    """Names, ARNs, or what leases call them; all where none is named."""
    region: str | None = None
    start_at: float | None = None
    """Where leases go on that know no place of their own (seconds since 1970)."""
    look_seconds: float = 0.0
    """How long to watch the fleet."""

    async def draft(self, context: ClientContext, open_: Open) -> ImportPlan:
        """Draft the takeover.

        Raises GroupBusyError while the fleet lives, ConfigurationError for what is
        no lease table, and KinesumerError for a stream that can't be read.
        """
        first = await read_leases(self.table)
        opened = streams_to_open(first.table, self.streams, self.region)
        seen = await require_no_workers(self.table, first, self.look_seconds)
        leases = by_stream(seen.table.leases)
        drafts = [
            await self._stream(context, await open_(name), leases[stream])
            for name, stream in opened.items()
        ]

        async def check() -> None:
            await require_no_workers(self.table, seen)

        return ImportPlan(f"lease table {self.table.name}", drafts, check)

    async def _stream(
        self, context: ClientContext, source: StreamSource, leases: Sequence[Lease]
    ) -> StreamPlan:
        found = {
            lease.shard_id: resume_point_of_lease(lease, self.start_at)
            for lease in leases
        }
        marks = {shard_id: mark or ResumePoint() for shard_id, mark in found.items()}
        drafted = await plan_stream(context, source, marks)
        adoption = drafted.adoption
        drafted.notes.extend(_notes(leases, adoption.stream.created_at))
        drafted.problems.extend(
            f"{shard_id}: its lease is AT_TIMESTAMP and KCL for Java stores no time: "
            "say the fleet's with --start-at"
            for shard_id, mark in found.items()
            if mark is None
        )
        known = adoption.before is not None and adoption.before.baseline
        if known and not adoption.is_done:
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
