"""One member's round: from the rows in its range to what it does about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kinesumer.model.positions import Position
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Range, ShardKey
    from kinesumer.ports import Write


def contains(range_: Range, arn: str, first_hash: int) -> bool:
    """Tell whether a shard with this starting hash key lies in a range."""
    return any(
        arn == interval.stream_arn and interval.first <= first_hash <= interval.last
        for interval in range_
    )


class Pauses(NamedTuple):
    """What operators paused of a group, beside single shards."""

    everything: bool = False
    streams: frozenset[str] = frozenset()
    """ARNs."""

    def cover(self, row: ShardRow) -> bool:
        """Tell whether a shard is paused: by itself, with its stream, or with all."""
        return self.everything or row.paused or row.key.stream_arn in self.streams


class ClaimDecision(NamedTuple):
    """What to do now with the shards in one's range."""

    claim: list[ShardRow]
    """Free, or owned by a session that is known to be dead, or by one's own: after a
    seek it owns what it doesn't hold."""
    verify: set[tuple[str, str]]
    """(client id, session) of owners that may be dead."""
    pending: list[ShardRow]
    """Shards that should be ours and aren't: look again soon."""
    stale: list[ShardRow]
    """One's own that can't be claimed: to be released, or they would wait for us."""


def decide_claims(
    rows: Iterable[ShardRow],
    held: Collection[ShardKey],
    dead: Collection[str],
    session: str,
    pauses: Pauses,
) -> ClaimDecision:
    """Decide a round from the rows read, the shards held and the sessions proved dead.

    A row that names a session as owner is never adopted from a read: reads may be
    stale. What a lost answer left open is settled by claiming again.
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
    """Tell whether a part of a range begins inside a shard, as merges may leave it.

    That shard is another member's, and nobody says when a child of it lies here.
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

    Releasing waits for ``delay``, one heartbeat: by then the next owner has learned of
    the plan too and is waiting for the shard, so that the gap is short.
    """
    outside = {
        key: moving_since.get(key, now)
        for key, first_hash in held.items()
        if not contains(range_, key.stream_arn, first_hash)
    }
    return outside, [key for key, since in outside.items() if now - since >= delay]


def was_seeked(mine: ShardRow, now: ShardRow) -> bool:
    """Tell whether an operator moved the position of a shard that was claimed so.

    Only a seek raises the epoch and keeps the owner.
    """
    return now.owner == mine.owner and now.epoch > mine.epoch


def was_applied(now: ShardRow, write: Write, position: Position | None) -> bool:
    """Tell from a refusing row whether an earlier try, its answer lost, was applied."""
    if "ended" in write.set:
        return now.ended
    if position is None:
        return True
    return now.position is not None and now.position >= position
