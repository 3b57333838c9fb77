"""Plan an import of positions, write it into a group's rows, verify and report it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kinesumer.coordination.shard_sync import check_identity, write_all
from kinesumer.coordination.startup_checks import check_group
from kinesumer.coordination.store_queries import read_all, read_stream_row
from kinesumer.core import lineage
from kinesumer.core.lineage import is_past_end
from kinesumer.errors import KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import Shard, ShardKey, Start, StreamInfo
from kinesumer.ops.group.connect import report_partial_failure, require_no_clients
from kinesumer.ops.group.shard_reads import PacedReader, ShardSampler
from kinesumer.ops.group.verify import EXPIRED, FOREIGN, GONE, Peek, Verdict, peek
from kinesumer.ports import StreamSource
from kinesumer.runtime.clock import reached_time
from kinesumer.runtime.context import ClientContext
from kinesumer.wire import admin_writes, rows, shard_writes, writes

Open = Callable[[str], Awaitable[StreamSource]]


class ResumePoint(NamedTuple):
    """The point at which reading of a shard resumes: a position or a start."""

    position: Position | None = None
    start: Start = Start.TRIM_HORIZON
    ended: bool = False  # the shard was read to its end


class RowChange(NamedTuple):
    """A shard's new row, and its current row (None if it doesn't exist)."""

    row: ShardRow
    before: ShardRow | None

    @property
    def action(self) -> str:
        """Return create, change or keep."""
        if self.before is None:
            return "create"
        return "keep" if _place(self.row) == _place(self.before) else "change"


class StreamPlan(NamedTuple):
    """The planned import of one stream."""

    stream: StreamRow
    before: StreamRow | None
    changes: list[RowChange]
    notes: list[str]
    problems: list[str]  # reasons that prevent the import

    @property
    def is_done(self) -> bool:
        """Return whether all rows have their new values already."""
        return (
            self.before is not None
            and self.before.baseline
            and all(change.action == "keep" for change in self.changes)
        )


def _place(row: ShardRow) -> tuple[bool, Position | Start | None]:
    """Return values that are equal if reading resumes at the same point."""
    # The start matters only if there is no position.
    return row.ended or row.ready, None if row.ended else row.position or row.start


async def plan_stream(
    context: ClientContext, source: StreamSource, points: Mapping[str, ResumePoint]
) -> StreamPlan:
    """Return the plan to import one stream's resume points, without writing it.

    Positions are looked up in the stream, and LATEST becomes the current time. Raise
    KinesumerError if the stream or a complete list of its shards can't be read,
    StreamRecreatedError if the group's rows are of an earlier stream with this name,
    and CorruptRowError for a corrupt row.
    """
    info = await source.describe()
    shards = await source.list_shards()
    require_complete(info.arn, shards)
    if any(point.start == Start.LATEST for point in points.values()):
        open_ids = [shard.shard_id for shard in lineage.leaves(shards)]
        info = info._replace(now=await reached_time(source, open_ids, info.now))
    listed = {shard.shard_id: shard for shard in shards}
    checked = await _check(info, source, points, listed)
    layout = create_rows(
        info.arn, shards, {shard_id: point for shard_id, (point, _) in checked.items()}
    )
    notes, problems = [], []
    for shard_id, (point, absent) in checked.items():
        shard = listed.get(shard_id)
        if point.ended and shard is not None and not shard.closed:
            problems.append(f"{shard_id}: {_NOT_ENDED}")
        elif absent is FOREIGN:
            problems.append(f"{shard_id}: {_FOREIGN}")
        elif absent is not None:
            notes.append(f"{shard_id}: {_NOTES[absent]}")
        starts_at = point.start.timestamp
        if not point.ended and point.position is None and starts_at is not None:
            if problem := info.future_start(starts_at):
                problems.append(f"{shard_id}: {problem}")
    problems += [
        f"{shard_id}: nothing tells how far it was read, nor its parents or children"
        for shard_id in layout.uncovered
    ]
    gone = [shard_id for shard_id in layout.expired if not points[shard_id].ended]
    notes += [f"{shard_id}: {_NOTES[GONE]}" for shard_id in gone]
    before = await read_stream_row(context, info.arn)
    if before is not None:
        check_identity(before, info)
    stored = {row.key.shard_id: row for row in await read_all(context, info.arn)}
    changes = [RowChange(row, stored.get(row.key.shard_id)) for row in layout.rows]
    # TRIM_HORIZON is safe: if a crash prevents the write of some rows, their shards are
    # read from the oldest record.
    stream = before or StreamRow(info.arn, info.created_at, Start.TRIM_HORIZON)
    return StreamPlan(stream, before, changes, notes, problems)


def require_complete(arn: str, shards: Sequence[Shard]) -> None:
    """Raise KinesumerError if a listing proves nothing about the shards it lacks."""
    if not lineage.is_complete(shards):
        raise KinesumerError(
            f"stream {arn}: the listed shards don't cover all hash keys, probably "
            "because a reshard is in progress; try again in a minute"
        )


_FOREIGN = (
    "Kinesis says that its position was never in this shard; was the stream created "
    "again, or is the position another stream's?"
)
_NOT_ENDED = (
    "it is said to be read to its end, but Kinesis lists it as open; find out how far "
    "it was read, and correct this before the import"
)
_NOTES = {
    EXPIRED: "retention has passed its position: unread records may be lost, "
    "it continues with the oldest one",
    GONE: "retention has passed the whole shard, unread records with it",
}


async def _check(
    info: StreamInfo,
    source: StreamSource,
    points: Mapping[str, ResumePoint],
    listed: Mapping[str, Shard],
) -> dict[str, tuple[ResumePoint, Verdict | None]]:
    """Return the resume points to import, and why their positions don't exist."""
    # Only reading a shard shows whether a position exists. Without this check, clients
    # would find out after the import.
    reader = PacedReader()

    async def check(
        shard_id: str, point: ResumePoint
    ) -> tuple[ResumePoint, Verdict | None]:
        if point.ended or shard_id not in listed:
            return point, None
        if point.position is None:
            if point.start == Start.LATEST:
                start = Start(type="AT_TIMESTAMP", timestamp=info.now)
                point = point._replace(start=start)
            return point, None
        if is_past_end(listed[shard_id], point.position):
            return point._replace(ended=True), None
        sampler = ShardSampler(reader, source, ShardKey(info.arn, shard_id), info.now)
        result = await peek(sampler, point.position.sequence_number)
        position = normalize_position(point.position, result)
        return point._replace(position=position), result.absent

    checked = await asyncio.gather(*(check(*item) for item in points.items()))
    return dict(zip(points, checked, strict=True))


def normalize_position(position: Position, result: Peek) -> Position:
    """Remove the sub-sequence number if it is that of an aggregate's last record."""
    sub, parts = position.sub_sequence_number, result.user_records
    if sub is None or parts is None or sub >= parts - 1:
        return Position(position.sequence_number)
    return position


class ShardRows(NamedTuple):
    """The rows of a stream, and the shards that don't fit its resume points."""

    rows: list[ShardRow]
    # Listed shards for which neither they nor an ancestor or descendant has a resume
    # point.
    uncovered: list[str]
    # Shards with a resume point that Kinesis no longer lists.
    expired: list[str]


def create_rows(
    arn: str, shards: Sequence[Shard], points: Mapping[str, ResumePoint]
) -> ShardRows:
    """Return a row for each listed shard.

    A shard without a resume point counts as read to its end if one of its descendants
    has a resume point. Otherwise it counts as a new child, and is read from its
    beginning after its parents have ended.
    """
    parents = {shard.shard_id: shard.parents for shard in shards}
    children = children_of(shards)
    unread = {shard_id for shard_id, point in points.items() if not point.ended}
    below_unread = lineage.ancestors(unread, children)
    read = lineage.ancestors(points, parents) - below_unread
    covered = points.keys() | read | lineage.ancestors(points, children)
    complete = {id_: points.get(id_, ResumePoint(ended=id_ in read)) for id_ in parents}
    created = [_row(arn, shard, complete) for shard in shards]
    uncovered = [shard_id for shard_id in parents if shard_id not in covered]
    return ShardRows(created, uncovered, sorted(points.keys() - parents.keys()))


def children_of(shards: Iterable[Shard]) -> dict[str, list[str]]:
    """Return the ids of each parent's children."""
    children: dict[str, list[str]] = {}
    for shard in shards:
        for parent in shard.parents:
            children.setdefault(parent, []).append(shard.shard_id)
    return children


def _row(arn: str, shard: Shard, points: Mapping[str, ResumePoint]) -> ShardRow:
    point = points[shard.shard_id]
    return lineage.new_row(arn, shard)._replace(
        position=point.position,
        start=point.start,
        ended=point.ended,
        ready=all(points[p].ended for p in shard.parents if p in points),
    )


# --- all streams of an import ---------------------------------------------------------


async def _unchanged() -> None:
    """Do nothing, since a file doesn't change."""


class ImportPlan(NamedTuple):
    """The planned import of some streams, and the source of their positions.

    ``check`` raises an error if the source has changed since it was read.
    """

    source: str
    plans: list[StreamPlan]
    check: Callable[[], Awaitable[object]] = _unchanged

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
            shard_writes.create_shard(app, change.row)
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
    for change in plan.changes:
        after, before = change
        # A row that isn't written keeps its owner, which has ended, since no client
        # runs.
        owner = before.owner if before and change.action == "keep" else ""
        row = stored.get(after.key)
        if row is None or row.owner != owner or _place(row) != _place(after):
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
                "before": change.before and _describe_position(change.before),
                "after": _describe_position(change.row),
            }
            for change in plan.changes
        ],
        "notes": plan.notes,
        "problems": plan.problems,
    }


def _describe_position(row: ShardRow) -> dict[str, Any]:
    waits = {"ended": row.ended, "waits_for_parents": not (row.ready or row.ended)}
    return waits | position_fields(row)


def position_fields(row: ShardRow) -> dict[str, Any]:
    """Return the fields of a shard's position in files and reports."""
    number, sub = row.position or (None, None)
    return {
        "ended": row.ended,
        "sequence_number": number,
        "sub_sequence_number": sub,
        "start": rows.start_text(row.start),
    }
