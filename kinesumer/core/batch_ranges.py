"""Decide which shards a query's batch may read, and from where to where.

A shard is read after all its parents. A batch reads each shard from its position in the
previous batch's offset to its position in the batch's own offset.

A batch's limits are divided so that the shards advance evenly in time. If one shard
were read ahead of the others, Spark's watermark would pass their unread records. So a
batch consists of the oldest records of all shards together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nextafter
from typing import NamedTuple

from kinesumer.core.lineage import ancestors, is_complete
from kinesumer.errors import CorruptOffsetError
from kinesumer.model.positions import (
    BEGINNING,
    After,
    At,
    End,
    Offset,
    Position,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import Shard, ShardKey, Start

# AWS's write limits of a shard. Only short bursts exceed them.
MAX_ROWS_PER_SECOND = 1_000.0
MAX_BYTES_PER_SECOND = 1_000_000.0
PROVEN_ROWS = 500  # a longer burst shows that the server doesn't enforce the limits
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


class Limits(NamedTuple):
    """The maximum rows and bytes of a batch, which it may slightly exceed."""

    rows: int | None = None
    bytes: int | None = None

    @property
    def any(self) -> bool:
        """True if there is a limit."""
        return self.rows is not None or self.bytes is not None


class ProbedRecord(NamedTuple):
    """The position, arrival time and size of a record."""

    position: Position
    arrived_at: float
    size: int


@dataclass(frozen=True, slots=True)
class Probed:
    """The records that a probe found after a position or since a time."""

    records: Sequence[ProbedRecord]
    iterator: str | None
    at_tip: bool  # true if no later record exists yet
    closed: bool = False  # true if the shard is closed, and nothing follows
    # The size of ``records`` and of the probed records before them.
    total_bytes: int = 0
    # True if the probe began where the batch begins, false if it began at a time.
    is_whole: bool = False

    def up_to(self, last: Position) -> Probed:
        """Return the records up to a position, as if that were the shard's tip."""
        return self._cut(sum(item.position <= last for item in self.records), last)

    def before(self, end: float) -> Probed:
        """Return the records before the first one that arrived at a time or later."""
        late = (i for i, item in enumerate(self.records) if item.arrived_at >= end)
        return self._cut(next(late, len(self.records)))

    def arrived_by(self, time: float) -> Probed:
        """Return the records before the first one that arrived after a time."""
        return self.before(nextafter(time, inf))

    def capped_at(self, time: float) -> Probed:
        """Return the records with later arrival times replaced by ``time``."""
        records = [r._replace(arrived_at=min(r.arrived_at, time)) for r in self.records]
        return replace(self, records=records)

    def bytes_up_to(self, last: ProbedRecord) -> int:
        """Return the size of the probed records up to one of them."""
        return self.total_bytes - sum(r.size for r in self.records if r > last)

    def _cut(self, count: int, last: Position | None = None) -> Probed:
        kept, dropped = self.records[:count], self.records[count:]
        reached = bool(dropped or (kept and kept[-1].position == last))
        return replace(
            self,
            records=kept,
            # The iterator continues after the dropped records, so it can't be used.
            iterator=None if dropped else self.iterator,
            at_tip=reached or self.at_tip,
            closed=self.closed and not reached,
            total_bytes=self.total_bytes - sum(item.size for item in dropped),
        )


class Share(NamedTuple):
    """A shard's part of a batch: some sampled records, or all records up to a time."""

    records: int
    until: float | None = None


def admit(
    samples: Mapping[ShardKey, Probed], limits: Limits, until: float = inf
) -> dict[ShardKey, Share]:
    """Return each shard's share of a batch. The batch has at least one record.

    A share may extend beyond the sampled records, but only to those that arrived up to
    ``until``.
    """
    # Until this time, the samples together contain all records of the shards.
    growing = [sample for sample in samples.values() if not sample.at_tip]
    horizon = min((s.records[-1].arrived_at for s in growing), default=inf)
    records = sorted(
        (record.arrived_at, key, record)
        for key, sample in samples.items()
        for record in sample.records
    )
    counts = dict.fromkeys(samples, 0)
    rows: float = inf if limits.rows is None else limits.rows
    size: float = inf if limits.bytes is None else limits.bytes
    known = len(records)
    for index, (arrived_at, key, record) in enumerate(records):
        if arrived_at > horizon:
            known = index
            break
        rows, size = rows - 1, size - record.size
        # The first record is always admitted. Otherwise, a record that is larger than
        # the limit would stop the query.
        if index and (rows < 0 or size < 0):
            return {key: Share(count) for key, count in counts.items()}
        counts[key] += 1
    if not growing:
        return {key: Share(count) for key, count in counts.items()}
    until = min(until, horizon + _seconds(growing, rows, size))
    more = Counter(key for arrived_at, key, _ in records[known:] if arrived_at <= until)
    shares = {}
    for key, sample in samples.items():
        count = counts[key] + more[key]
        reaches = not sample.at_tip and count == len(sample.records)
        shares[key] = Share(count, until if reaches else None)
    return shares


def _seconds(samples: Sequence[Probed], rows: float, size: float) -> float:
    """Estimate in what time this many further rows or bytes arrived in the shards."""
    rows_rate = bytes_rate = 0.0
    for sample in samples:
        span = sample.records[-1].arrived_at - sample.records[0].arrived_at
        span = max(span, 1e-6)
        count = len(sample.records)
        per_second = count / span
        bytes_per_second = sum(record.size for record in sample.records) / span
        if count <= PROVEN_ROWS or per_second <= 4 * MAX_ROWS_PER_SECOND:
            per_second = min(MAX_ROWS_PER_SECOND, per_second)
            bytes_per_second = min(MAX_BYTES_PER_SECOND, bytes_per_second)
        rows_rate += per_second
        bytes_rate += bytes_per_second
    return min(rows / rows_rate, size / max(bytes_rate, 1e-6))
