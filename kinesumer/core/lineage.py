"""Decide which rows a stream's shards need, and when a shard was read to its end.

The decisions follow from the shards' parents and children. A parent that has no row and
that Kinesis doesn't list has expired. It counts as ended.

A shard that was read to its end is never read again. The last response of a closed
shard has no iterator, and names the shard's children. Two other facts only look like an
end:

- A response without iterator and children. AWS and emulators send it for open shards,
  too, and some emulators never name children. If it has records, more may follow them.
  If it has none, a listing must show that the shard is closed. Records may have arrived
  between the response and the listing, so the same place is read once more after it.
- A position that Kinesis refuses. If the shard is closed and the position is not before
  its ending sequence number, which is greater than the number of its last record, then
  nothing follows. Other consumers store this number as a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum, auto
from typing import NamedTuple

from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import ShardRow, StreamRow
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey, Start


def leaves(shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards without children, sorted by starting hash key."""
    parents = {parent for shard in shards for parent in shard.parents}
    open_shards = [shard for shard in shards if shard.shard_id not in parents]
    return sorted(open_shards, key=lambda shard: shard.first_hash)


def is_current(shards: Sequence[Shard], rows: Iterable[ShardRow]) -> bool:
    """Return whether a listing is complete and at least as recent as the rows.

    Shard ids increase, so a recent listing contains the newest id of the rows.
    """
    newest = max((row.key.shard_id for row in rows), default="")
    return is_complete(shards) and newest <= max(s.shard_id for s in shards)


def is_complete(shards: Sequence[Shard]) -> bool:
    """Return whether a listing's leaves cover the whole hash space exactly.

    If they don't, the listing was cut off or made during a reshard, and proves nothing.
    The shards of a table's stream have no hash keys, and each stands at one point. Its
    source raises an error instead of returning a listing that was cut off.
    """
    if shards and all(shard.is_point for shard in shards):
        return True
    expected = 0
    for leaf in leaves(shards):
        if leaf.first_hash != expected:
            return False
        expected = leaf.last_hash + 1
    return expected == HASH_KEYS


class Origin(NamedTuple):
    """The information from which a stream's first rows are made."""

    stream: StreamRow
    # Ids of the shards that were closed before the stream's start. They are skipped.
    before_start: frozenset[str] = frozenset()
    # Checkpoints of Kinesumer for Go, by shard id.
    positions: Mapping[str, Position] = {}


def first_rows(origin: Origin, shards: Sequence[Shard]) -> list[ShardRow]:
    """Return the first rows of a stream, from a complete listing."""
    ended = {
        shard.shard_id
        for shard in shards
        if shard.shard_id in origin.before_start
        and shard.shard_id not in origin.positions
    }
    known = {shard.shard_id for shard in shards}
    rows = [
        new_row(origin.stream.arn, shard)._replace(
            start=_first_start(origin, shard, known),
            position=origin.positions.get(shard.shard_id),
        )
        for shard in shards
    ]
    return with_ends(rows, ended)


def with_ends(rows: Sequence[ShardRow], ended: Set[str]) -> list[ShardRow]:
    """Return new rows of a whole stream, of which these shards have ended.

    A shard is ready if all its parents have ended or have no row.
    """
    known = {row.key.shard_id for row in rows}
    return [
        row._replace(
            ended=row.key.shard_id in ended, ready=not (row.parents & known) - ended
        )
        for row in rows
    ]


def _first_start(origin: Origin, shard: Shard, known: set[str]) -> Start:
    """Return a shard's start, which is its beginning if a parent has a checkpoint."""
    if set(shard.parents) & known & set(origin.positions):
        return Start.TRIM_HORIZON
    return origin.stream.start


def new_row(arn: str, shard: Shard) -> ShardRow:
    """Return the row of a shard that is read from its beginning, after its parents."""
    return ShardRow(
        key=ShardKey(arn, shard.shard_id),
        first_hash=shard.first_hash,
        last_hash=shard.last_hash,
        start=Start.TRIM_HORIZON,
        parents=frozenset(shard.parents),
    )


class Repairs(NamedTuple):
    """The changes that sync the rows of a stream with a complete listing."""

    create: list[ShardRow]
    ready: list[ShardRow]
    prune: list[ShardRow]
    # Ended rows of shards that are listed as open. If the listing isn't older than the
    # rows, their ends are wrong.
    reopen: list[ShardRow]


def repairs(
    arn: str,
    rows: Sequence[ShardRow],
    shards: Sequence[Shard],
    unreadable: Collection[str] = (),
) -> Repairs:
    """Return the changes of rows that a complete listing requires.

    ``unreadable`` are the ids of the shards whose rows can't be parsed. These shards
    count as present and not ended.
    """
    by_id = {row.key.shard_id: row for row in rows}
    listed = {shard.shard_id for shard in shards}
    # Shard ids increase. So a listing without the newest row's shard was cut off.
    if by_id and max(by_id) > max(listed):
        return Repairs([], [], [], [])
    # If a descendant of a listed shard is ready or ended, the shard was read and its
    # row was pruned. Such a shard gets no new row, since reading it again would repeat
    # its records.
    parents = {shard.shard_id: shard.parents for shard in shards}
    past = ancestors((i for i, row in by_id.items() if row.ready or row.ended), parents)
    past.update(unreadable)
    missing = [s for s in shards if s.shard_id not in by_id and s.shard_id not in past]
    pending = {shard.shard_id for shard in missing}.union(unreadable)
    create = []
    for shard in missing:
        row = new_row(arn, shard)
        ready = _parents_ended(row.parents, by_id, pending)
        create.append(row._replace(ready=ready))
    return Repairs(
        create=create,
        ready=ready_children(rows, rows, pending),
        prune=[row for row in rows if row.ended and row.key.shard_id not in listed],
        reopen=ended_but_open(rows, shards),
    )


def ended_but_open(rows: Iterable[ShardRow], shards: Sequence[Shard]) -> list[ShardRow]:
    """Return the ended rows of shards that are listed as open, without children."""
    is_open = {shard.shard_id for shard in leaves(shards) if not shard.closed}
    return [row for row in rows if row.ended and row.key.shard_id in is_open]


def ready_children(
    children: Iterable[ShardRow], parents: Iterable[ShardRow], pending: Collection[str]
) -> list[ShardRow]:
    """Return the waiting rows whose parents have all ended.

    ``parents`` are all rows of the stream. They must be read after the children, since
    a seek may reopen parents meanwhile. A parent in ``pending`` hasn't ended, although
    it may have no row.
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

    If a shard has children with rows, they count instead of it, even while the shard is
    still being read. A child starts where a parent starts or inside a parent, so the
    plan stays valid.
    """
    parents = {parent for row in rows for parent in row.parents}
    return sorted(
        {
            row.first_hash
            for row in rows
            if not row.ended and row.key.shard_id not in parents
        }
    )


def unended_shard_starts(rows: Iterable[ShardRow]) -> list[int]:
    """Return the starting hash keys of the shards that aren't read to their end.

    Of shards that start at the same hash key, only one can be owned at a time.
    """
    return sorted({row.first_hash for row in rows if not row.ended})


def generations(rows: Iterable[ShardRow]) -> Iterator[list[ShardRow]]:
    """Divide rows into generations, of which each one has no parents in later ones."""
    waiting = {row.key.shard_id: row for row in rows}
    while waiting:
        free = [r for r in waiting.values() if waiting.keys().isdisjoint(r.parents)]
        # Corrupt rows may name each other as parents. If so, take all remaining rows.
        generation = free or list(waiting.values())
        yield generation
        for row in generation:
            del waiting[row.key.shard_id]


class SeekStep(NamedTuple):
    """One shard whose position a seek moves."""

    row: ShardRow  # the row as read, or the row to create
    is_new: bool
    waits: bool  # true if a parent must be read first, perhaps again


def seek_steps(
    rows: Sequence[ShardRow], new: Iterable[ShardRow], shard_ids: Collection[str]
) -> list[list[SeekStep]]:
    """Return the steps of a seek in generations, parents before their children.

    ``rows`` are all rows of the stream, ``new`` are rows to create for shards without
    one, and ``shard_ids`` are the shards to seek. A parent without a row has expired,
    so its children don't wait for it.
    """
    missing = {row.key.shard_id for row in new}
    known = {row.key.shard_id: row for row in (*rows, *new)}
    unread = {i for i, row in known.items() if i in shard_ids or not row.ended}
    # Write parents first. If a child were written before its parents, it could become
    # ready too early, since the parents would still count as ended.
    return [
        [
            SeekStep(
                row,
                is_new=row.key.shard_id in missing,
                waits=not unread.isdisjoint(row.parents),
            )
            for row in generation
        ]
        for generation in generations(r for i, r in known.items() if i in shard_ids)
    ]


class NextStep(Enum):
    """The next step in reading a shard, after a response."""

    READ_ON = auto()  # with the response's iterator
    READ_AFTER_LAST = auto()  # with a new iterator after the response's last record
    CONFIRM = auto()  # list the shards; if the shard is closed, read this place again
    END = auto()  # nothing follows


def after_page(page: Page, *, was_closed: bool) -> NextStep:
    """Return how reading continues after a response of GetRecords.

    ``was_closed`` says whether a listing had shown, before the request was sent, that
    the shard is closed.
    """
    if page.next_iterator is not None:
        return NextStep.READ_ON
    if page.children:
        return NextStep.END
    if page.records:
        return NextStep.READ_AFTER_LAST
    return NextStep.END if was_closed else NextStep.CONFIRM


def find(shards: Iterable[Shard], shard_id: str) -> Shard | None:
    """Return the shard with an id, or None."""
    return next((shard for shard in shards if shard.shard_id == shard_id), None)


def is_past_end(shard: Shard, after: Position | Start) -> bool:
    """Return whether no record of a closed shard can follow a position."""
    if not isinstance(after, Position) or shard.ending_sequence_number is None:
        return False
    # No record has the ending number, so the part of an aggregate makes no difference.
    return Position(after.sequence_number) >= Position(shard.ending_sequence_number)


def records_before(page: Page, until: float) -> int:
    """Return how many records a page has before the first that arrived too late.

    Records without an arrival time don't end the reading.
    """
    if until == math.inf:
        return len(page.records)
    times = [record.approximate_arrival_timestamp for record in page.records]
    late = (i for i, time in enumerate(times) if time is not None and time >= until)
    return next(late, len(times))


def is_read_until(rows: Iterable[ShardRow], until: float) -> bool:
    """Return whether all records of a stream that arrived before a time are done.

    So each shard has ended, or its row says that it was read until the time. The
    children of such a shard have only later records, and are not read.
    """
    going_on = [row for row in rows if not row.ended]
    done = {row.key.shard_id for row in going_on if row.read_until >= until}
    while late := {r.key.shard_id for r in going_on if r.parents & done} - done:
        done |= late
    return len(done) == len(going_on)
