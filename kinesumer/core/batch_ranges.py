"""Decide which shards a query's batch may read, and from where to where.

A shard is read after all its parents. A batch reads each shard from its position in the
previous batch's offset to its position in the batch's own offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kinesumer.core.lineage import ancestors, is_complete
from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import (
    BEGINNING,
    After,
    At,
    End,
    Offset,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import Shard, Start

# The first and the last position of a range.
Pair = tuple[ShardPosition, ShardPosition]


class Readable(NamedTuple):
    """A shard that a batch may read, with its position."""

    shard: Shard
    position: ShardPosition
    seen: float  # no record after the position arrived before this time
    # Where the query ends in the shard; None if it goes on.
    target: ShardPosition | None = None

    @property
    def ends(self) -> bool:
        """True if the target is the shard's end; without a target, if it is closed."""
        if self.target is not None:
            return isinstance(self.target, End)
        return self.shard.closed


def seen_at(position: ShardPosition) -> float | None:
    """Return a time before which no record after a position arrived, or None."""
    match position:
        case After(seen=seen) | At(seen=seen):
            return seen
        case Start(timestamp=timestamp):
            return timestamp
    return None


def readable(
    offset: StreamOffset,
    shards: Sequence[Shard],
    targets: Mapping[str, ShardPosition] | None = None,
) -> list[Readable]:
    """Return the shards that the batch after a committed offset may read.

    All parents of such a shard have expired or been read to their ends. A shard that
    isn't in the offset is read from its beginning. But if the offset contains
    descendants of the shard, the shard has been read already, and isn't returned. If
    there are targets, a shard without a target isn't returned, either.
    """
    known = offset.shards
    parents = {shard.shard_id: shard.parents for shard in shards}
    read = ancestors(known, parents)

    def is_done(parent: str) -> bool:
        if parent in known:
            return isinstance(known[parent], End)
        return parent not in parents or parent in read

    result = []
    for shard in shards:
        position = known.get(shard.shard_id)
        if isinstance(position, End) or (position is None and shard.shard_id in read):
            continue
        target = None if targets is None else targets.get(shard.shard_id)
        if all(map(is_done, shard.parents)) and (targets is None or target is not None):
            seen = _seen(offset, shard)
            result.append(Readable(shard, position or BEGINNING, seen, target))
    return result


def _seen(offset: StreamOffset, shard: Shard) -> float:
    """Return a time before which none of a shard's unread records arrived.

    This is the time of the shard's position. If the offset has no position in the
    shard, it is the time of its parents' ends.
    """
    position = offset.shards.get(shard.shard_id)
    if position is not None:
        seen = seen_at(position)
        return offset.anchored_at if seen is None else seen
    ends = [offset.shards.get(parent) for parent in shard.parents]
    times = [end.seen for end in ends if isinstance(end, End) and end.seen]
    return min(times, default=offset.anchored_at)


def vanished(offset: StreamOffset, shards: Sequence[Shard]) -> list[str]:
    """Return the shards that expired before they were read to their ends."""
    omitted = _omitted(offset, shards)
    return [i for i in omitted if not isinstance(offset.shards[i], End)]


def still_needed(
    offset: StreamOffset, shards: Sequence[Shard]
) -> dict[str, ShardPosition]:
    """Return an offset's positions, except in fully read shards that have expired."""
    omitted = set(_omitted(offset, shards))
    return {
        shard_id: position
        for shard_id, position in offset.shards.items()
        if shard_id not in omitted or not isinstance(position, End)
    }


def _omitted(offset: StreamOffset, shards: Sequence[Shard]) -> list[str]:
    """Return the shards of an offset that Kinesis no longer lists.

    Return none of them if the listing is incomplete, or if it is older than the offset.
    It is older if the offset contains a greater shard id.
    """
    listed = {shard.shard_id for shard in shards}
    if not is_complete(shards) or max(offset.shards, default="") > max(listed):
        return []
    return [shard_id for shard_id in offset.shards if shard_id not in listed]


def between(start: Offset, end: Offset) -> dict[str, dict[str, Pair]]:
    """Return the range that a batch reads in each shard, by stream ARN and shard id.

    The result depends only on the offsets: if Spark repeats a batch after a restart, it
    must have the same records. A stream that isn't in ``start``, or was recreated,
    begins at the ``origin`` in ``end``.
    """
    ranges: dict[str, dict[str, Pair]] = {}
    for arn, stream in sorted(end.items()):
        firsts, before = dict(stream.origin), start.get(arn)
        if before is not None and before.created_at == stream.created_at:
            firsts = {**before.shards, **firsts}
        pairs = ranges[arn] = {}
        for shard_id, last in sorted(stream.shards.items()):
            first = firsts.get(shard_id, BEGINNING)
            if _has_records(first, last):
                pairs[shard_id] = first, last
    return ranges


def _has_records(first: ShardPosition, last: ShardPosition) -> bool:
    """Return whether a record may lie after ``first`` and up to ``last``."""
    if isinstance(first, After) and isinstance(last, After):
        if last.position < first.position:
            raise CorruptOffsetError(
                f"a batch would go back from {first.position} to {last.position}: use "
                "the query's own checkpoint, and don't change it"
            )
        return first.position != last.position
    return not isinstance(first, End) and not isinstance(last, Start)
