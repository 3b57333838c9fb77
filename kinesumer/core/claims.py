"""Which shards a session claims and releases, decided from the rows in its range."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kinesumer.model.positions import Position
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Range, ShardKey
    from kinesumer.ports import Write


def contains(range_: Range, arn: str, first_hash: int) -> bool:
    """Return whether a shard with this starting hash key lies in a range."""
    return any(
        arn == interval.stream_arn and interval.first <= first_hash <= interval.last
        for interval in range_
    )


class Pauses(NamedTuple):
    """The pauses of a group, except those of single shards."""

    everything: bool = False
    streams: frozenset[str] = frozenset()
    """ARNs."""

    def cover(self, row: ShardRow) -> bool:
        """Return whether a shard is paused: by itself, with its stream, or with all."""
        return self.everything or row.paused or row.key.stream_arn in self.streams


class ClaimDecision(NamedTuple):
    """What a session does with the shards in its range."""

    claim: list[ShardRow]
    """Shards that are free, owned by a dead session, or owned by this session but not
    held, which happens after a seek."""
    verify: set[tuple[str, str]]
    """(client id, session) of the owners that may be dead."""
    pending: list[ShardRow]
    """Shards that this session should hold and doesn't: read them again soon."""
    stale: list[ShardRow]
    """Shards of this session that it can't claim: it must release them."""


def decide_claims(
    rows: Iterable[ShardRow],
    held: Collection[ShardKey],
    dead: Collection[str],
    session: str,
    pauses: Pauses,
) -> ClaimDecision:
    """Decide from the rows read, the shards held, and the sessions known to be dead.

    A row that names this session as owner isn't enough to hold the shard, since reads
    may be stale. A claim whose answer was lost is repeated instead.
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
        if row.owner in ("", session) or row.owner in dead:
            decision.claim.append(row)
        else:
            decision.verify.add((row.owner_id, row.owner))
    return decision


def starts_inside_shard(range_: Range, rows: Iterable[ShardRow]) -> bool:
    """Return whether an interval of a range starts inside a shard, as after a merge.

    Another session owns that shard, and its children may start in this range at any
    time. So the range must be read more often.
    """
    starts = {(row.key.stream_arn, row.first_hash) for row in rows if not row.ended}
    return any((part.stream_arn, part.first) not in starts for part in range_)


def to_release(
    held: Mapping[ShardKey, int],
    range_: Range,
    moving_since: Mapping[ShardKey, float],
    now: float,
    delay: float,
) -> tuple[dict[ShardKey, float], list[ShardKey]]:
    """Return since when held shards lie outside the range, and those to release now.

    A shard is released after ``delay``, about one heartbeat. By then the next owner
    knows the plan and is waiting for the shard, so the gap is short.
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


def was_applied(now: ShardRow, write: Write, position: Position | None) -> bool:
    """Return whether a refused write was applied earlier, with its answer lost."""
    if "ended" in write.set:
        return now.ended
    if position is None:
        return True
    return now.position is not None and now.position >= position
