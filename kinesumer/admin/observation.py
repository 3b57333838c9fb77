"""One look at a fleet, with what only a series of looks can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.status import stall_limit_seconds, track_unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey

STUCK_SECONDS = 60.0
BEHIND_MILLIS = 10_000


class Observation(NamedTuple):
    """The rows at one moment, and since when what stands has stood."""

    found: Snapshot
    at: float
    """Seconds on the looker's own clock."""
    hearts: Mapping[str, tuple[int, float]] = {}
    """By session: the beat, and when it was first seen."""
    places: Mapping[ShardKey, tuple[Position | None, float]] = {}
    """By shard: the position, and when it was first seen."""
    owners: Mapping[ShardKey, str] = {}
    """The last client that owned each shard, also while nobody does."""
    stuck: frozenset[ShardKey] = frozenset()
    """Owned shards that are behind and have stood for a minute."""

    def age(self, session: str) -> float:
        """Return for how long a session's heartbeat has been seen unchanged."""
        return self.at - self.hearts[session][1]

    @property
    def silent(self) -> frozenset[str]:
        """The sessions whose next heartbeat is overdue."""
        return frozenset(
            member.session
            for member in self.found.alive
            if self.age(member.session) > stall_limit_seconds(member)
        )


def observe(
    before: Observation | None,
    found: Snapshot,
    millis_behind: Mapping[ShardKey, int],
    now: float,
) -> Observation:
    """Return what is seen now; what hasn't changed has its time from before."""
    old = before or Observation(found, now)
    rows = [row for page in found.shards.values() for row in page]
    beats = {member.session: member.beat for member in found.alive}
    hearts = track_unchanged(old.hearts, beats, now)
    places = track_unchanged(old.places, {row.key: row.position for row in rows}, now)
    owners = {row.key: row.owner_id or old.owners.get(row.key, "") for row in rows}
    stuck = frozenset(
        row.key
        for row in rows
        if _should_advance(row, millis_behind)
        and now - places[row.key][1] >= STUCK_SECONDS
    )
    return Observation(found, now, hearts, places, owners, stuck)


def _should_advance(row: ShardRow, millis_behind: Mapping[ShardKey, int]) -> bool:
    return bool(row.owner) and millis_behind.get(row.key, 0) >= BEHIND_MILLIS
