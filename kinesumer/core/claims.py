"""Decide which shards a session claims, and which ones it releases.

The session reads the rows of the shards in the range that the plan gives it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from math import inf
from typing import NamedTuple

from kinesumer.core.progress import Progress
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import HASH_KEYS, Range, ShardKey
from kinesumer.ports import Write

# A second hardly delays a claim.
LOOK_SECONDS = 1.0
# At most so many rows are read in a second to look for new shards. A table with
# thousands of partitions has tens of thousands of rows.
ROWS_PER_SECOND = 1000


def contains(
    range_: Range, arn: str, first_hash: int, last_hash: int | None = None
) -> bool:
    """Return whether one interval of a range contains a shard's starting hash key.

    With ``last_hash``, it must contain all hash keys up to this one. The intervals of a
    range are in order, and do not overlap.
    """
    following = bisect_right(range_, (arn, first_hash, HASH_KEYS))
    if not following:
        return False
    interval = range_[following - 1]
    last = first_hash if last_hash is None else last_hash
    return arn == interval.stream_arn and last <= interval.last


class Pauses(NamedTuple):
    """The pauses of a group, except those of single shards."""

    everything: bool = False
    streams: frozenset[str] = frozenset()  # ARNs

    def cover(self, row: ShardRow) -> bool:
        """Return whether a shard is paused, alone or with its stream or all streams."""
        return self.everything or row.paused or row.key.stream_arn in self.streams


class ClaimDecision(NamedTuple):
    """A session's actions for the shards in its range."""

    # Shards to claim: they are free, or owned by a dead session, or this session owns
    # them but doesn't read them, which happens after a seek.
    claim: list[ShardRow]
    verify: set[tuple[str, str]]  # (client id, session) of the owners that may be dead
    # Shards that this session should hold but doesn't. Their rows are read again soon.
    pending: list[ShardRow]
    # Shards that this session owns but may not read, since they are paused or wait for
    # their parents. The session must release them.
    stale: list[ShardRow]


def decide_claims(
    rows: Iterable[ShardRow],
    held: Collection[ShardKey],
    dead: Collection[str],
    session: str,
    pauses: Pauses,
    room: float = inf,
) -> ClaimDecision:
    """Return what a session has to do about the shards of ``rows``.

    ``held`` are the shards that the session reads already, and ``dead`` are the
    sessions that are known to be dead. The session may own up to ``room`` more shards
    than ``held``. Shards that it already owns come first.
    """
    decision = ClaimDecision([], set(), [], [])
    for row in rows:
        if row.ended or row.key in held:
            continue
        is_paused = pauses.cover(row)
        if row.owner == session and (is_paused or not row.ready):
            decision.stale.append(row)
        if is_paused:
            continue
        decision.pending.append(row)
        if not row.ready:
            continue
        # This session may own the shard without reading it, if the response to its
        # claim was lost or the shard was seeked. In both cases it claims the shard
        # again.
        if row.owner in ("", session) or row.owner in dead:
            decision.claim.append(row)
        elif not row.is_foreign:
            decision.verify.add((row.owner_id, row.owner))
    if len(decision.claim) + len(decision.stale) > room:
        decision.claim.sort(key=lambda row: row.owner != session)
        del decision.claim[max(0, int(room) - len(decision.stale)) :]
    return decision


def starts_inside_shard(range_: Range, rows: Iterable[ShardRow]) -> bool:
    """Return whether an interval of a range starts inside a shard, as after a merge.

    Another session owns that shard. The shard may get children in this range at any
    time, so the session must read the rows of its range more often. Any shard of a
    table's stream may, so that soon this is true for all ranges of such a stream.
    """
    starts = {(row.key.stream_arn, row.first_hash) for row in rows if not row.ended}
    return any((part.stream_arn, part.first) not in starts for part in range_)


def look_seconds(rows: int) -> float:
    """Return how often to look for new shards if so many rows must be read for that."""
    return max(LOOK_SECONDS, rows / ROWS_PER_SECOND)


def to_release(
    held: Mapping[ShardKey, int],
    range_: Range,
    moving_since: Mapping[ShardKey, float],
    now: float,
    delay: float,
) -> tuple[dict[ShardKey, float], list[ShardKey]]:
    """Return since when shards have been outside the range, and which to release.

    A shard is released after it has been outside for ``delay`` seconds, which is about
    one heartbeat interval. By that time the next owner knows the plan and waits for the
    shard, so reading is interrupted only briefly.
    """
    outside = {
        key: moving_since.get(key, now)
        for key, first_hash in held.items()
        if not contains(range_, key.stream_arn, first_hash)
    }
    return outside, [key for key, since in outside.items() if now - since >= delay]


def was_seeked(mine: ShardRow, now: ShardRow) -> bool:
    """Return whether a seek came after the claim that ``mine`` shows.

    Only a seek raises the epoch and keeps the owner.
    """
    return now.owner == mine.owner and now.epoch > mine.epoch


def is_stored(
    progress: Progress, mine: ShardRow, now: ShardRow | None, position: Position
) -> bool:
    """Return whether an owner's position is stored although its write was refused.

    Unlike in ``was_applied()``, a position that a later owner stored doesn't count.
    """
    # A concurrent release may have stored the position. The row may not show that,
    # since a later owner may have changed it.
    if progress.has_committed(position):
        return True
    # Only this client writes to the row in this epoch. So if the row has the position,
    # this client stored it: by an attempt whose answer was lost, or by a release.
    return now is not None and now.epoch == mine.epoch and _has_passed(now, position)


def was_applied(now: ShardRow, write: Write, position: Position | None) -> bool:
    """Return whether an earlier attempt of a refused write gave a shard up.

    Unlike in ``is_stored()``, the epoch doesn't count: once the shard was given up, a
    later owner may have claimed it, and may have stored a later position.
    """
    if "ended" in write.set:
        return now.ended
    return position is None or _has_passed(now, position)


def _has_passed(row: ShardRow, position: Position) -> bool:
    return row.position is not None and row.position >= position
