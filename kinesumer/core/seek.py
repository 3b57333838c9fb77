"""A seek: which shards read on from elsewhere, and in which order they are told.

Parents first. The other way round a child, just told, might be opened because its
parents hadn't been told yet, and be read before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kinesumer.model.rows import ShardRow


class Step(NamedTuple):
    """What a seek does with one shard."""

    row: ShardRow
    """As it was read; a shard that has no row yet gets one."""
    is_new: bool
    waits: bool
    """A parent is to be read before it, perhaps again."""


def steps(
    rows: Sequence[ShardRow], new: Iterable[ShardRow], wanted: Collection[str]
) -> list[list[Step]]:
    """Return the steps of a seek in lists: parents are in lists before their children.

    ``rows`` are all of the stream, ``new`` those that it lacks; ``wanted`` are the ids
    of the shards to seek. A parent without a row has expired, and isn't waited for.
    """
    missing = {row.key.shard_id for row in new}
    known = {row.key.shard_id: row for row in (*rows, *new)}
    unread = {i for i, row in known.items() if i in wanted or not row.ended}
    return [
        [
            Step(row, row.key.shard_id in missing, not unread.isdisjoint(row.parents))
            for row in generation
        ]
        for generation in _generations(known[i] for i in known if i in wanted)
    ]


def _generations(rows: Iterable[ShardRow]) -> list[list[ShardRow]]:
    waiting = {row.key.shard_id: row for row in rows}
    found = []
    while waiting:
        free = [r for r in waiting.values() if waiting.keys().isdisjoint(r.parents)]
        # Where somebody wrote parents that go in a ring, nobody comes first.
        found.append(free or list(waiting.values()))
        for row in found[-1]:
            del waiting[row.key.shard_id]
    return found
