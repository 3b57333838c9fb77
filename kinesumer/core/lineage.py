"""The shard graph: which listings are complete, and which rows a listing requires.

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
    """Return the shards that aren't a parent of another one, by starting hash key."""
    parents = {parent for shard in shards for parent in shard.parents}
    open_shards = [shard for shard in shards if shard.shard_id not in parents]
    return sorted(open_shards, key=lambda shard: shard.first_hash)


def is_current(shards: Sequence[Shard], rows: Iterable[ShardRow]) -> bool:
    """Return whether a listing is complete and at least as recent as the rows.

    Shard ids grow, so a recent listing has the newest id.
    """
    newest = max((row.key.shard_id for row in rows), default="")
    return is_complete(shards) and newest <= max(s.shard_id for s in shards)


def is_complete(shards: Sequence[Shard]) -> bool:
    """Return whether a listing's leaves cover the whole hash space exactly.

    Any other listing was cut off or made during a reshard, and proves nothing.
    """
    expected = 0
    for leaf in leaves(shards):
        if leaf.first_hash != expected:
            return False
        expected = leaf.last_hash + 1
    return expected == HASH_KEYS


class Origin(NamedTuple):
    """Where a stream's first rows start."""

    stream: StreamRow
    before_start: frozenset[str] = frozenset()
    """Shards that were closed before the start: they are skipped."""
    positions: Mapping[str, Position] = {}
    """Checkpoints of Kinesumer for Go, by shard id."""


def first_rows(origin: Origin, shards: Sequence[Shard]) -> list[ShardRow]:
    """Return the first rows of a stream, from a complete listing."""
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
    """Return the start; a child of a shard with a checkpoint is read whole."""
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
    """Return the row of a child, which is read whole once its parents have ended."""
    return _row(arn, child, Start.TRIM_HORIZON)


def as_shard(child: ChildShard) -> Shard:
    """Return a child as a shard of a listing."""
    return Shard(child.shard_id, child.first_hash, child.last_hash, child.parents)


class Repairs(NamedTuple):
    """The changes that sync the rows of a stream with a complete listing."""

    create: list[ShardRow]
    ready: list[ShardRow]
    prune: list[ShardRow]


def repairs(
    arn: str,
    rows: Sequence[ShardRow],
    shards: Sequence[Shard],
    unreadable: Collection[str] = (),
) -> Repairs:
    """Return the repairs that a complete listing requires.

    Shards with ``unreadable`` rows count as present and not ended.

    A listed shard without a row gets one only if no descendant is ready or ended.
    Otherwise its row was pruned, and reading it again would repeat its records. Shard
    ids grow, so a listing without the newest row's shard was cut off. It is ignored.
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

    ``parents`` are the stream's rows, read after the children, since a seek may have
    opened them again in between. Parents in ``pending`` haven't ended.
    """
    by_id = {row.key.shard_id: row for row in parents}
    return [
        row
        for row in children
        if not (row.ready or row.ended) and _parents_ended(row.parents, by_id, pending)
    ]


def ancestors(known: Iterable[str], parents: Mapping[str, Collection[str]]) -> set[str]:
    """Return the parents of these shards, their parents, and so on."""
    reached: set[str] = set()
    waiting = list(known)
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in reached:
                reached.add(parent)
                waiting.append(parent)
    return reached


def _parents_ended(
    parents: frozenset[str], rows: Mapping[str, ShardRow], pending: Collection[str]
) -> bool:
    return all(
        rows[parent].ended if parent in rows else parent not in pending
        for parent in parents
    )


def open_shard_starts(rows: Sequence[ShardRow]) -> list[int]:
    """Return the starting hash keys of a stream's open shards, for a plan.

    Children count once they have a row, although their parents may still be read. They
    start where a parent starts or inside a parent, so the plan stays valid.
    """
    parents = {parent for row in rows for parent in row.parents}
    return sorted(
        {
            row.first_hash
            for row in rows
            if not row.ended and row.key.shard_id not in parents
        }
    )
