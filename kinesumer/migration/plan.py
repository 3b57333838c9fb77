"""What taking positions over will do to a group, and what speaks against it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.sampling import Presence, peek
from kinesumer.admin.shard_reads import PacedReader
from kinesumer.core import lineage
from kinesumer.errors import KinesumerError
from kinesumer.migration.apply import compare
from kinesumer.model.positions import Position
from kinesumer.model.streams import ShardKey, Start
from kinesumer.runtime.service_time import reached_time

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.admin.sampling import Peek
    from kinesumer.migration.apply import StreamChanges
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import StreamSource
    from kinesumer.runtime.context import ClientContext


class StreamPlan(NamedTuple):
    """The planned import of one stream."""

    stream_changes: StreamChanges
    notes: list[str]
    """Facts that the operator should know."""
    problems: list[str]
    """Reasons that prevent the import."""


async def plan_stream(
    context: ClientContext, source: StreamSource, marks: Mapping[str, ResumePoint]
) -> StreamPlan:
    """Compare resume points with the stream and the group's rows, without a write.

    Positions within aggregates are looked up, and LATEST becomes the current time.
    Raise KinesumerError if the stream or a complete listing can't be read.
    """
    info = await source.describe()
    shards = await source.list_shards()
    if not lineage.is_complete(shards):
        raise KinesumerError(
            f"stream {info.arn}: its listing has holes, as in the middle of a reshard; "
            "try again in a minute"
        )
    if any(mark.start == Start.LATEST for mark in marks.values()):
        open_ids = [shard.shard_id for shard in lineage.leaves(shards)]
        now = await reached_time(source, open_ids, info.now)
        info = info._replace(now=now)
    checked = await _check(info, source, marks, {s.shard_id for s in shards})
    layout = create_rows(
        info.arn, shards, {id_: mark for id_, (mark, _) in checked.items()}
    )
    said = [
        (f"{id_}: {_DESCRIPTIONS[found]}", found) for id_, (_, found) in checked.items()
    ]
    notes = [text for text, found in said if found in (Presence.EXPIRED, Presence.GONE)]
    problems = [text for text, found in said if found is Presence.FOREIGN]
    problems += [
        f"{shard_id}: nothing tells how far it was read, nor its parents or children"
        for shard_id in layout.uncovered
    ]
    problems += [
        f"{id_}: its start lies {mark.start.timestamp - info.now:.0f} s in the future"
        for id_, (mark, _) in checked.items()
        if not mark.ended
        and mark.position is None
        and mark.start.timestamp is not None
        and mark.start.timestamp > info.now + 1
    ]
    notes += [
        f"{shard_id}: retention has passed the whole shard, unread records with it"
        for shard_id in layout.expired
        if not marks[shard_id].ended
    ]
    return StreamPlan(await compare(context, info, layout.rows), notes, problems)


_DESCRIPTIONS = {
    Presence.THERE: "its position is there",
    Presence.FOREIGN: "Kinesis says that its position was never in this shard: is it "
    "another stream's, or was the stream made anew?",
    Presence.EXPIRED: "retention has passed its position: unread records may be lost, "
    "it goes on with the oldest one",
    Presence.GONE: "retention has passed the whole shard, unread records with it",
}


async def _check(
    info: StreamInfo,
    source: StreamSource,
    marks: Mapping[str, ResumePoint],
    listed: set[str],
) -> dict[str, tuple[ResumePoint, Presence]]:
    """Return the resume points to import, and whether their positions exist."""
    asking = PacedReader()

    async def one(shard_id: str, mark: ResumePoint) -> tuple[ResumePoint, Presence]:
        if mark.ended or shard_id not in listed:
            return mark, Presence.THERE
        if mark.position is None:
            return mark._replace(start=_resolved(mark.start, info)), Presence.THERE
        key = ShardKey(info.arn, shard_id)
        found = await peek(asking, source, key, mark.position.sequence_number)
        position = normalize_position(mark.position, found)
        return mark._replace(position=position), found.presence

    done = await asyncio.gather(*(one(*item) for item in marks.items()))
    return dict(zip(marks, done, strict=True))


def normalize_position(position: Position, found: Peek) -> Position:
    """Return a position without its part if the part is the record's last."""
    sub = position.sub_sequence_number
    if sub is None or found.user_records is None or sub >= found.user_records - 1:
        return Position(position.sequence_number)
    return position


def _resolved(start: Start, info: StreamInfo) -> Start:
    if start == Start.LATEST:
        return Start(type="AT_TIMESTAMP", timestamp=info.now)
    return start


class ResumePoint(NamedTuple):
    """Where reading of a shard resumes."""

    position: Position | None = None
    start: Start = Start.TRIM_HORIZON
    """The start if there is no position."""
    ended: bool = False
    """Whether the shard was read to its end."""


class ShardRows(NamedTuple):
    """The rows of a stream, and the shards that don't match it."""

    rows: list[ShardRow]
    uncovered: list[str]
    """Shards without a resume point for them, an ancestor or a descendant."""
    expired: list[str]
    """Shards with a resume point that Kinesis no longer lists."""


def create_rows(
    arn: str, shards: Sequence[Shard], marks: Mapping[str, ResumePoint]
) -> ShardRows:
    """Return a row for each listed shard.

    A shard without a resume point was read before if one of its descendants has one.
    Otherwise it is a new child, and is read from its beginning after its parents.
    """
    parents = {shard.shard_id: shard.parents for shard in shards}
    children = children_of(shards)
    unread = {shard_id for shard_id, mark in marks.items() if not mark.ended}
    below_unread = lineage.ancestors(unread, children)
    above = lineage.ancestors(marks, parents)
    below = lineage.ancestors(marks, children)
    found, uncovered = dict[str, ResumePoint](), []
    for shard in shards:
        shard_id = shard.shard_id
        if shard_id in marks:
            found[shard_id] = marks[shard_id]
        elif shard_id in above and shard_id not in below_unread:
            found[shard_id] = ResumePoint(ended=True)
        else:
            found[shard_id] = ResumePoint()
            if shard_id not in below:
                uncovered.append(shard_id)
    rows = [_row(arn, shard, found) for shard in shards]
    return ShardRows(rows, uncovered, sorted(set(marks) - set(found)))


def children_of(shards: Iterable[Shard]) -> dict[str, list[str]]:
    """Return the ids of each parent's children."""
    found: dict[str, list[str]] = {}
    for shard in shards:
        for parent in shard.parents:
            found.setdefault(parent, []).append(shard.shard_id)
    return found


def resume_point_of_row(row: ShardRow) -> ResumePoint:
    """Return where a group resumes reading a shard."""
    return ResumePoint(row.position, row.start, row.ended)


def _row(arn: str, shard: Shard, marks: Mapping[str, ResumePoint]) -> ShardRow:
    mark = marks[shard.shard_id]
    known = [parent for parent in shard.parents if parent in marks]
    return lineage.child_row(arn, shard)._replace(
        position=mark.position,
        start=mark.start,
        ended=mark.ended,
        ready=all(marks[parent].ended for parent in known),
    )
