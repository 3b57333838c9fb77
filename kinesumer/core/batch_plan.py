"""Choose where a batch of a query ends in each shard, in three phases.

1. ``Observed``: a probe has read the next records of a shard.
2. ``choose()`` returns a ``Share`` for each shard. If a row is read some batches after
   newer rows, it may be behind Spark's watermark. So while there is a backlog, a batch
   ends at the same arrival time in all shards. Children are read in the batch after the
   one that reads their parents to their ends. So that one ends where a child begins.
3. ``Ended``: the position after the batch. ``end()`` returns it, or a ``Search`` if
   the last record of the share lies after the probed ones. ``end_offset()`` puts all
   ends together.

For example, shard A has unread records since 10:00, and ends at 11:00. Its child B has
records since 11:01, and shard C since 10:30. The first batch reads A to its end, and C
up to 11:01. The next batch reads B and C up to the present.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from kinesumer.core.batch_ranges import (
    Limits,
    Probed,
    ProbedRecord,
    Readable,
    Share,
    admit,
    still_needed,
)
from kinesumer.model.positions import (
    SEEN_SLACK_SECONDS,
    After,
    End,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.streams import Shard, ShardKey, Start


@dataclass(frozen=True, slots=True)
class Observed:
    """The result of a shard's probe. A shard that was refused or is lost has none."""

    key: ShardKey
    shard: Readable
    # The position, or what replaces it: an At if the position is a Start, or a Start if
    # the record at the position has expired.
    begin: ShardPosition
    since: float  # a time before which no unread record arrived
    probed: Probed | None = None
    is_quiet: bool = False  # no record follows the position, not even after the target
    is_lost: bool = False  # Kinesis no longer knows the shard
    # True if the probe found records near the tip, not those after the position.
    is_jump: bool = False

    @property
    def records(self) -> Sequence[ProbedRecord]:
        """The probed records after the position."""
        return () if self.probed is None or self.is_jump else self.probed.records


class Search(NamedTuple):
    """The end isn't known yet: it is the last record up to a time."""

    until: float


class Ended(NamedTuple):
    """The end of a batch in a shard."""

    position: ShardPosition
    behind_seconds: float = 0.0  # behind the tip
    last: ProbedRecord | None = None  # the record before the position, if it was probed


class Chosen(NamedTuple):
    """The part of the backlog that a batch reads."""

    shares: Mapping[ShardKey, Share]  # of the shards that have records
    until: float  # the batch ends in all shards at this time; inf without a backlog


def choose(
    observed: Sequence[Observed],
    first_arrivals: Mapping[ShardKey, float],
    limits: Limits,
    skew_seconds: float,
    now: float,
) -> Chosen:
    """Choose how far a batch reads in each shard.

    ``first_arrivals`` has, for each shard that may end in the batch, the time just
    before the first record of its descendants, or ``now``. The records that the batch
    reads in different shards arrive at most ``skew_seconds`` apart. ``now`` is a time
    that Kinesis's clock has reached.
    """
    until = inf
    if skew_seconds < inf:
        until = common_end(observed, first_arrivals.values(), skew_seconds, now)
    samples = {}
    for shard in observed:
        if shard.probed is not None and shard.records:
            # Of a shard that has ended by then, all records belong to the batch. Their
            # arrival times may be out of order.
            ended = shard.shard.ends and first_arrivals.get(shard.key, inf) <= until
            probed = shard.probed
            samples[shard.key] = (
                probed.capped_at(until) if ended else probed.arrived_by(until)
            )
    return Chosen(admit(samples, limits, until), until)


def common_end(
    observed: Iterable[Observed],
    first_arrivals: Collection[float],
    skew_seconds: float,
    now: float,
) -> float:
    """Return the arrival time at which a batch ends in all shards.

    Return inf if no shard has a backlog.
    """
    shards = list(observed)
    refused = [s.since for s in shards if s.probed is None and not s.is_lost]
    # The batch ends at the first record of a child, or up to ``skew_seconds`` later if
    # other children begin meanwhile. So one batch can read several parents to the end.
    latest = min(first_arrivals, default=inf) + skew_seconds
    children = max((time for time in first_arrivals if time <= latest), default=inf)
    until = min(now, min(refused, default=inf) + skew_seconds, children)
    if until < now or any(s.since + skew_seconds < now for s in shards if s.records):
        return until
    return inf


def end(shard: Observed, chosen: Chosen, ended_by: float, now: float) -> Ended | Search:
    """Return where a batch ends in a shard, if the probed records tell.

    ``ended_by`` is a time by which the last record of a closed shard arrived.
    """
    readable, probed = shard.shard, shard.probed
    if probed is None or (shard.is_jump and chosen.until < inf):
        return Ended(readable.position)
    if shard.is_jump:
        last = probed.records[-1]
        return end_at(shard, last, now, at_tip=probed.at_tip, closed=probed.closed)
    share = chosen.shares.get(shard.key)
    if share is None:  # there are no records
        over = probed.at_tip and (probed.closed or readable.ends)
        return Ended(End(readable.seen) if over else readable.position)
    if not share.records:
        return Ended(readable.position, max(0.0, now - probed.records[0].arrived_at))
    last = probed.records[share.records - 1]
    if share.records == len(probed.records) and probed.at_tip:
        closed = probed.closed or readable.ends
        return end_at(shard, last, now, at_tip=True, closed=closed)
    if share.until is None:
        return end_at(shard, last, now)
    if readable.ends and ended_by <= share.until:
        return Ended(End(last.arrived_at))
    if isinstance(readable.target, After) and readable.target.seen <= share.until:
        return Ended(readable.target)
    return Search(share.until)


def end_at(
    shard: Observed,
    last: ProbedRecord,
    now: float,
    *,
    at_tip: bool = False,
    closed: bool = False,
) -> Ended:
    """Return the end of a batch at its last record in a shard."""
    if closed:
        return Ended(End(last.arrived_at))
    target = shard.shard.target
    if isinstance(target, After) and last.position > target.position:
        return Ended(target)
    if at_tip and not isinstance(target, After):
        seen = max(last.arrived_at, now - SEEN_SLACK_SECONDS)
        return Ended(After(last.position, seen), last=last)
    behind = 0.0 if at_tip else max(0.0, now - last.arrived_at)
    return Ended(After(last.position, last.arrived_at), behind, last)


def confirmed(
    shard: Observed, *, is_stale: bool, begins: bool, now: float
) -> ShardPosition | None:
    """Return the position with a later time if no record follows it, else None.

    ``begins`` is true in the query's first batch of the stream.
    """
    position = shard.shard.position
    if not shard.is_quiet:
        return None
    # Few digits keep the offset's JSON short.
    seen = math.floor((now - SEEN_SLACK_SECONDS) * 1000) / 1000
    if isinstance(position, After):
        return After(position.position, max(position.seen, seen))
    if not (is_stale or begins):
        return None
    start = getattr(position, "timestamp", None) or 0.0
    return Start(type="AT_TIMESTAMP", timestamp=max(start, seen))


def end_offset(
    before: StreamOffset,
    listed: Sequence[Shard],
    ends: Mapping[str, tuple[Observed, Ended]],
    lost: Collection[str],
    renewed: Mapping[str, ShardPosition],
) -> StreamOffset:
    """Return the positions in a stream after a batch, given those of each shard.

    ``renewed`` are positions in quiet shards with a later time.
    """
    moved = {
        shard_id: ended.position
        for shard_id, (shard, ended) in ends.items()
        if ended.position is not shard.shard.position
    }
    kept = still_needed(replace(before, shards={**before.shards, **renewed}), listed)
    restarted = {
        shard_id: ends[shard_id][0].begin
        for shard_id in moved
        if ends[shard_id][0].begin is not ends[shard_id][0].shard.position
    }
    return replace(
        before,
        shards={i: p for i, p in {**kept, **moved}.items() if i not in lost},
        origin={**before.origin, **restarted},
    )
