"""The shard graph: what a listing must look like, which rows it asks for.

A parent that neither the table nor Kinesis knows has expired, and counts as ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, ChildShard, Shard, ShardKey, Start

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kinesumer.model.positions import Position


def leaves(shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards that are no other's parent, by starting hash key."""
    parents = {parent for shard in shards for parent in shard.parents}
    found = [shard for shard in shards if shard.shard_id not in parents]
    return sorted(found, key=lambda shard: shard.first_hash)


def is_current(shards: Sequence[Shard], rows: Iterable[ShardRow]) -> bool:
    """Tell whether a listing is complete, and no older than the rows: ids grow."""
    newest = max((row.key.shard_id for row in rows), default="")
    return is_complete(shards) and newest <= max(s.shard_id for s in shards)


def is_complete(shards: Sequence[Shard]) -> bool:
    """Tell whether a listing's leaves tile the whole hash space.

    One that doesn't was cut off or taken in the middle of a reshard: it proves nothing.
    """
    expected = 0
    for leaf in leaves(shards):
        if leaf.first_hash != expected:
            return False
        expected = leaf.last_hash + 1
    return expected == HASH_KEYS


class Origin(NamedTuple):
    """Where a stream's first rows start from."""

    stream: StreamRow
    before_start: frozenset[str] = frozenset()
    """Shards that were closed before the start was resolved: nothing in them counts."""
    positions: Mapping[str, Position] = {}
    """Checkpoints that Kinesumer for Go left, by shard id."""


def first_rows(origin: Origin, shards: Sequence[Shard]) -> list[ShardRow]:
    """Return the rows that a stream begins with, from a complete listing."""
    ended = {
        shard.shard_id
        for shard in shards
        if shard.shard_id in origin.before_start
        and shard.shard_id not in origin.positions
    }
    known = {shard.shard_id for shard in shards}
    rows = []
    for shard in shards:
        row = _row(origin.stream.arn, shard, _first_start(origin, shard, known))
        rows.append(
            row._replace(
                position=origin.positions.get(shard.shard_id),
                ended=shard.shard_id in ended,
                ready=not (set(shard.parents) & known) - ended,
            )
        )
    return rows


def _first_start(origin: Origin, shard: Shard, known: set[str]) -> Start:
    """A child of a shard with a checkpoint is read from its beginning."""
    if set(shard.parents) & known & set(origin.positions):
        return Start.TRIM_HORIZON
    return origin.stream.start


def _row(arn: str, shard: Shard, start: Start) -> ShardRow:
    return ShardRow(
        key=ShardKey(arn, shard.shard_id),
        first_hash=shard.first_hash,
        last_hash=shard.last_hash,
        start=start,
        parents=frozenset(shard.parents),
    )


def child_row(arn: str, child: Shard) -> ShardRow:
    """Return the row of a child: read from its beginning, once its parents ended."""
    return _row(arn, child, Start.TRIM_HORIZON)


def as_shard(child: ChildShard) -> Shard:
    """Return a child as a listing would name it."""
    return Shard(child.shard_id, child.first_hash, child.last_hash, child.parents)


class Repairs(NamedTuple):
    """What brings the rows of a stream in step with a complete listing."""

    create: list[ShardRow]
    ready: list[ShardRow]
    prune: list[ShardRow]


def repairs(
    arn: str,
    rows: Sequence[ShardRow],
    shards: Sequence[Shard],
    unreadable: Collection[str] = (),
) -> Repairs:
    """Compare rows with a complete listing.

    Shards whose rows are unreadable have rows, and can't be said to have ended.

    A listed shard without a row gets one only if no descendant of it may be read: else
    its row was pruned, and reading it again would repeat it. A listing that ends before
    the newest row was cut off (shard ids grow): it proves nothing.
    """
    by_id = {row.key.shard_id: row for row in rows}
    listed = {shard.shard_id for shard in shards}
    if by_id and max(by_id) > max(listed):
        return Repairs([], [], [])
    parents = {shard.shard_id: shard.parents for shard in shards}
    past = ancestors((i for i, row in by_id.items() if row.ready or row.ended), parents)
    past.update(unreadable)
    missing = [s for s in shards if s.shard_id not in by_id and s.shard_id not in past]
    pending = {shard.shard_id for shard in missing}.union(unreadable)
    create = []
    for shard in missing:
        row = child_row(arn, shard)
        ready = _parents_ended(row.parents, by_id, pending)
        create.append(row._replace(ready=ready))
    return Repairs(
        create=create,
        ready=ready_children(rows, rows, pending),
        prune=[row for row in rows if row.ended and row.key.shard_id not in listed],
    )


def ready_children(
    children: Iterable[ShardRow], parents: Iterable[ShardRow], pending: Collection[str]
) -> list[ShardRow]:
    """Return the waiting rows whose parents have all ended.

    ``parents`` are the stream's rows, read after the children were: a seek may have
    opened them again meanwhile. Of those in ``pending`` it isn't known.
    """
    by_id = {row.key.shard_id: row for row in parents}
    return [
        row
        for row in children
        if not (row.ready or row.ended) and _parents_ended(row.parents, by_id, pending)
    ]


def ancestors(known: Iterable[str], parents: Mapping[str, Collection[str]]) -> set[str]:
    """Return the parents of these shards, their parents, and so on."""
    found: set[str] = set()
    waiting = list(known)
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found


def _parents_ended(
    parents: frozenset[str], rows: Mapping[str, ShardRow], pending: Collection[str]
) -> bool:
    return all(
        rows[parent].ended if parent in rows else parent not in pending
        for parent in parents
    )


def open_shard_starts(rows: Sequence[ShardRow]) -> list[int]:
    """Return the starting hash keys of a stream's open shards, for a plan.

    Children count from the moment they have a row, though their parents may still be
    read: they start where a parent starts or inside one, so the plan stays the same.
    """
    parents = {parent for row in rows for parent in row.parents}
    return sorted(
        {
            row.first_hash
            for row in rows
            if not row.ended and row.key.shard_id not in parents
        }
    )
