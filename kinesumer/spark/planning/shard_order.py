"""The shards that a batch may read: parents before children, none twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.lineage import ancestors, is_complete
from kinesumer.spark.offsets.model import BEGINNING, After, End

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.model.streams import Shard
    from kinesumer.spark.offsets.model import ShardPosition, StreamOffset


class Readable(NamedTuple):
    """A shard that a batch may read, with its position."""

    shard: Shard
    place: ShardPosition
    seen: float
    """Nothing after the place arrived before this time."""


def readable(offset: StreamOffset, shards: Sequence[Shard]) -> list[Readable]:
    """Return the shards that may be read after a committed offset.

    A shard may be read when all its parents have been read to their ends, or have
    expired. A child that the offset doesn't name is read from its beginning. A shard
    whose children are named has been read already.
    """
    known = offset.shards
    parents = {shard.shard_id: shard.parents for shard in shards}
    past = ancestors(known, parents)
    found = []
    for shard in shards:
        place = known.get(shard.shard_id)
        if isinstance(place, End) or (place is None and shard.shard_id in past):
            continue
        if all(_is_done(p, known, parents, past) for p in shard.parents):
            seen = _seen(offset, shard) if not isinstance(place, After) else place.seen
            found.append(Readable(shard, place or BEGINNING, seen))
    return found


def vanished(offset: StreamOffset, shards: Sequence[Shard]) -> list[str]:
    """Return the shards with unread records that a complete listing omits."""
    if not _proves_absence(offset, shards):
        return []
    listed = {shard.shard_id for shard in shards}
    return [
        shard_id
        for shard_id, place in offset.shards.items()
        if shard_id not in listed and not isinstance(place, End)
    ]


def still_needed(
    offset: StreamOffset, shards: Sequence[Shard]
) -> dict[str, ShardPosition]:
    """Return an offset's positions without read shards that Kinesis has dropped."""
    if not _proves_absence(offset, shards):
        return dict(offset.shards)
    listed = {shard.shard_id for shard in shards}
    return {
        shard_id: place
        for shard_id, place in offset.shards.items()
        if shard_id in listed or not isinstance(place, End)
    }


def _is_done(
    parent: str,
    known: Mapping[str, ShardPosition],
    listed: Mapping[str, Sequence[str]],
    past: set[str],
) -> bool:
    if parent in known:
        return isinstance(known[parent], End)
    return parent not in listed or parent in past


def _seen(offset: StreamOffset, shard: Shard) -> float:
    """Return a time before which none of a shard's unread records arrived.

    A shard begins where its parents end. A start by time is that time.
    """
    place = offset.shards.get(shard.shard_id)
    if place is not None:
        timestamp = getattr(place, "timestamp", None)
        return offset.anchored_at if timestamp is None else timestamp
    ends = [offset.shards.get(parent) for parent in shard.parents]
    times = [end.seen for end in ends if isinstance(end, End) and end.seen]
    return min(times, default=offset.anchored_at)


def _proves_absence(offset: StreamOffset, shards: Sequence[Shard]) -> bool:
    """Tell whether shards that a listing omits are gone.

    The listing must be complete, and not older than the offset: shard ids only grow.
    """
    if not is_complete(shards):
        return False
    newest = max(offset.shards, default="")
    return newest <= max(shard.shard_id for shard in shards)
