"""The steps of a seek: which shard rows to write, and in which order.

Parents come first. Otherwise a child could become ready because its parents, not
seeked yet, still count as ended, and would be read before them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kinesumer.model.rows import ShardRow


class Step(NamedTuple):
    """One shard of a seek."""

    row: ShardRow
    """The row as read, or the row to create."""
    is_new: bool
    waits: bool
    """Whether a parent must be read first, perhaps again."""


def steps(
    rows: Sequence[ShardRow], new: Iterable[ShardRow], shard_ids: Collection[str]
) -> list[list[Step]]:
    """Return the steps of a seek in generations, parents before their children.

    ``rows`` are all rows of the stream, ``new`` the missing ones, and ``shard_ids`` the
    shards to seek. A parent without a row has expired, so its children don't wait.
    """
    missing = {row.key.shard_id for row in new}
    known = {row.key.shard_id: row for row in (*rows, *new)}
    unread = {i for i, row in known.items() if i in shard_ids or not row.ended}
    return [
        [
            Step(row, row.key.shard_id in missing, not unread.isdisjoint(row.parents))
            for row in generation
        ]
        for generation in _generations(known[i] for i in known if i in shard_ids)
    ]


def _generations(rows: Iterable[ShardRow]) -> list[list[ShardRow]]:
    waiting = {row.key.shard_id: row for row in rows}
    generations = []
    while waiting:
        free = [r for r in waiting.values() if waiting.keys().isdisjoint(r.parents)]
        # Corrupt rows may be each other's parents: then take all that are left.
        generations.append(free or list(waiting.values()))
        for row in generations[-1]:
            del waiting[row.key.shard_id]
    return generations
