"""Write imported positions into a group's rows, verify them, and report them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from kinesumer.coordination.shard_sync import write_all
from kinesumer.coordination.startup_checks import check_group
from kinesumer.coordination.store_queries import read_all
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.model.rows import ShardRow
from kinesumer.ops.group.connect import report_partial_failure, require_no_clients
from kinesumer.ops.migration.plan import StreamPlan, is_same_position, plan_stream
from kinesumer.ops.migration.positions import Positions
from kinesumer.ports import StreamSource
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes, rows, writes

Open = Callable[[str], Awaitable[StreamSource]]


async def _unchanged() -> None:
    """Do nothing, since a file doesn't change."""


class ImportPlan(NamedTuple):
    """The planned import of some streams, and the source of their positions.

    ``check`` raises an error if the source has changed since it was read.
    """

    source: str
    plans: list[StreamPlan]
    check: Callable[[], Awaitable[None]] = _unchanged

    @property
    def problems(self) -> list[str]:
        """Reasons that prevent the import, by stream."""
        return [
            f"{plan.stream.arn}: {problem}"
            for plan in self.plans
            for problem in plan.problems
        ]

    @property
    def is_done(self) -> bool:
        """Return whether the group's rows have all positions already."""
        return all(plan.is_done for plan in self.plans)

    async def write(self, context: ClientContext) -> None:
        """Write the rows while no client runs, and verify them."""
        await require_no_clients(context)
        await self.check()
        with report_partial_failure(
            "not all is written: run it again, then start clients"
        ):
            for plan in self.plans:
                await write(context, plan)
        # Check again, since a client or worker that started meanwhile would have read
        # from the old positions.
        await require_no_clients(context)
        await self.check()

    def report(self, *, written: bool) -> dict[str, Any]:
        """Return the report as JSON: see docs/positions.md."""
        return {
            "source": self.source,
            "written": written,
            "problems": self.problems,
            "streams": [_stream_report(plan) for plan in self.plans],
        }


async def plan_file_import(
    context: ClientContext, source: str, positions: Positions, open_: Open
) -> ImportPlan:
    """Return the plan to import a file of positions.

    Raise ConfigurationError if the file doesn't fit the streams, and KinesumerError if
    a stream was created again after the export.
    """
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
                f"stream {info.arn} was created again at "
                f"{rows.timestamp_text(info.created_at)}, and the positions are of the "
                f"one created at {rows.timestamp_text(stream.stream_created_at)}: "
                "remove its positions"
            )
        plans.append(await plan_stream(context, opened, stream.resume_points()))
    return ImportPlan(source, plans)


async def write(context: ClientContext, plan: StreamPlan) -> None:
    """Write a stream's changed rows, and verify them.

    No client may consume meanwhile: see ``require_no_clients``. Raise KinesumerError if
    the rows don't have the written values afterwards.
    """
    if plan.is_done:
        return
    await check_group(context, None)
    app, stream = context.app, plan.stream
    # The stream row's ``baseline`` is withdrawn first and set last. Without it, a
    # client that starts meanwhile claims no shard. After a crash, repeating the import
    # completes the rows.
    if plan.before is None:
        await context.write(writes.create_stream(app, stream))
    await context.write(admin_writes.withdraw(app, stream))
    await write_all(
        context,
        (
            writes.create_shard(app, change.row)
            if change.before is None
            else admin_writes.replace(app, change.row, change.before)
            for change in plan.changes
            if change.action != "keep"
        ),
    )
    await _verify(context, plan)
    await context.write(writes.baseline(app, stream))


async def _verify(context: ClientContext, plan: StreamPlan) -> None:
    arn = plan.stream.arn
    stored = {row.key: row for row in await read_all(context, arn)}
    wrong = []
    for after, before in plan.changes:
        # A row that isn't written keeps its owner, which has ended, since no client
        # runs.
        kept = before is not None and is_same_position(after, before)
        owner = before.owner if before is not None and kept else ""
        row = stored.get(after.key)
        if row is None or row.owner != owner or not is_same_position(row, after):
            wrong.append(after.key.shard_id)
    if wrong:
        raise KinesumerError(
            f"stream {arn}: the rows of {', '.join(wrong)} have changed after they "
            "were written; make sure that no client of the app runs, and try again"
        )


def _stream_report(plan: StreamPlan) -> dict[str, Any]:
    return {
        "stream_arn": plan.stream.arn,
        "known": plan.before is not None,
        "counts": dict(Counter(change.action for change in plan.changes)),
        "shards": [
            {
                "shard_id": change.row.key.shard_id,
                "action": change.action,
                "before": change.before and describe_position(change.before),
                "after": describe_position(change.row),
            }
            for change in plan.changes
        ],
        "notes": plan.notes,
        "problems": plan.problems,
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
