"""Where each shard of a stream is to be read on, whoever noted it, as shard rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core import lineage
from kinesumer.model.streams import Start

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.model.positions import Position
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard


class ResumePoint(NamedTuple):
    """How far a shard has been read."""

    position: Position | None = None
    start: Start = Start.TRIM_HORIZON
    """Where to begin without a position."""
    ended: bool = False
    """It was read to its end."""


class ShardRows(NamedTuple):
    """The rows of a stream, and what doesn't go together with it."""

    rows: list[ShardRow]
    uncovered: list[str]
    """Shards that neither have a mark nor descend from, or precede, one that has."""
    expired: list[str]
    """Marks of shards that Kinesis no longer lists."""


def create_rows(
    arn: str, shards: Sequence[Shard], marks: Mapping[str, ResumePoint]
) -> ShardRows:
    """Return a row for each listed shard.

    A shard without a mark was read before, if one of its descendants has one; else it
    is a new child, and is read from its beginning after its parents.
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
    """Return how far a group has read a shard."""
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
