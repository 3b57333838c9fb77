"""The import of positions: its plan, its report and its writes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.admin.context import report_partial_failure, require_no_clients
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.migration.apply import write
from kinesumer.migration.plan import StreamPlan, plan_stream
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kinesumer.migration.apply import RowChange
    from kinesumer.migration.positions import Positions
    from kinesumer.model.rows import ShardRow
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext

    Open = Callable[[str], Awaitable[StreamSource]]

VERSION = 1


async def _at_rest() -> None:
    """Do nothing, since a file doesn't change."""


class ImportPlan(NamedTuple):
    """The planned import of some streams, and the source of their positions."""

    source: str
    plans: list[StreamPlan]
    check: Callable[[], Awaitable[None]] = _at_rest
    """Raises an error if the source has changed since it was read."""

    @property
    def problems(self) -> list[str]:
        """Reasons that prevent the import, by stream."""
        return [
            f"{each.stream_changes.stream.arn}: {problem}"
            for each in self.plans
            for problem in each.problems
        ]

    @property
    def is_done(self) -> bool:
        """Whether the group's rows have all positions already."""
        return all(each.stream_changes.is_done for each in self.plans)

    async def write(self, context: ClientContext) -> None:
        """Write the rows while no client runs, and verify them."""
        await require_no_clients(context)
        await self.check()
        with report_partial_failure(
            "not all is written: run it again, then start clients"
        ):
            for each in self.plans:
                await write(context, each.stream_changes)
        await require_no_clients(context)
        await self.check()

    def report(self, *, written: bool) -> dict[str, Any]:
        """Return the report as JSON: see docs/positions.md."""
        return {
            "version": VERSION,
            "source": self.source,
            "written": written,
            "problems": self.problems,
            "streams": [_stream(each) for each in self.plans],
        }


async def of_file(
    context: ClientContext, source: str, positions: Positions, open_: Open
) -> ImportPlan:
    """Return the plan to import a file of positions. Raise ConfigurationError."""
    plans = []
    for stream in positions.streams:
        opened = await open_(stream.stream_arn)
        info = await opened.describe()
        if info.arn != stream.stream_arn:
            raise ConfigurationError(
                f"{escape_unprintable(stream.stream_arn)} isn't the stream's ARN: use "
                f"{info.arn}"
            )
        if info.created_at != stream.stream_created_at:
            raise KinesumerError(
                f"stream {info.arn} was made at {rows.timestamp_text(info.created_at)},"
                " the positions are of the one made at "
                f"{rows.timestamp_text(stream.stream_created_at)}: they mean nothing"
            )
        plans.append(await plan_stream(context, opened, stream.marks()))
    return ImportPlan(source, plans)


def _stream(each: StreamPlan) -> dict[str, Any]:
    stream_changes = each.stream_changes
    return {
        "stream_arn": stream_changes.stream.arn,
        "known": stream_changes.before is not None,
        "counts": dict(Counter(change.action for change in stream_changes.changes)),
        "shards": [_change(change) for change in stream_changes.changes],
        "notes": each.notes,
        "problems": each.problems,
    }


def _change(change: RowChange) -> dict[str, Any]:
    return {
        "shard_id": change.row.key.shard_id,
        "action": change.action,
        "before": None if change.before is None else describe_position(change.before),
        "after": describe_position(change.row),
    }


def describe_position(row: ShardRow) -> dict[str, Any]:
    """Return where reading of a shard resumes, as JSON."""
    number, sub = row.position or (None, None)
    return {
        "ended": row.ended,
        "waits_for_parents": not (row.ready or row.ended),
        "sequence_number": number,
        "sub_sequence_number": sub,
        "start": rows.start_text(row.start),
    }


def narrowed(streams: Sequence[str], positions: Positions) -> Positions:
    """Return the positions of the named streams, or of all if none is named.

    Raise KinesumerError if the positions lack a stream.
    """
    if not streams:
        return positions
    arns = [stream.stream_arn for stream in positions.streams]
    for name in streams:
        if not any(name in (arn, stream_name(arn)) for arn in arns):
            raise KinesumerError(
                f"the positions do not name stream {name}, only {', '.join(arns)}; "
                "name one of these"
            )
    kept = [
        stream
        for stream in positions.streams
        if {stream.stream_arn, stream_name(stream.stream_arn)} & set(streams)
    ]
    positions.streams = kept
    return positions
