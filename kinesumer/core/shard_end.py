"""Decide whether a shard was read to its end, after which it is never read again.

The last response of a closed shard has no iterator, and names the shard's children.
Two other facts only look like an end:

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
from collections.abc import Iterable
from enum import Enum, auto

from kinesumer.model.positions import Position
from kinesumer.model.records import Page
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import Shard, Start


class NextStep(Enum):
    """How the reading of a shard continues after a response."""

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
