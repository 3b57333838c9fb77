"""Looks at the state store as anybody could, and at what must never happen there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin import snapshot
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore


class Watch:
    """The latest snapshot, the shards' lineage, and whatever went backwards."""

    def __init__(self, store: StateStore, app: str) -> None:
        self.latest = snapshot.Snapshot([], None, [], {})
        self.parents: dict[ShardKey, frozenset[str]] = {}
        self.went_back: list[str] = []
        self.orphans: dict[str, set[ShardKey]] = {}
        """What each killed client owns or is given until its death is noticed."""
        self._store, self._app = store, app
        self._rows: dict[ShardKey, ShardRow] = {}

    async def look(self) -> Snapshot:
        """Read all rows and compare them with those before."""
        found = await snapshot.take(self._store, self._app)
        for shards in found.shards.values():
            for row in shards:
                self._compare(row)
        for member in found.alive:
            if member.client_id in self.orphans:
                held = held_by(found, member.client_id)
                self.orphans[member.client_id] |= held
        self.latest = found
        return found

    def stored(self, key: ShardKey) -> str:
        """Return the sequence number up to which a shard is stored as done."""
        row = self._rows.get(key)
        return row.position.sequence_number if row and row.position else ""

    def _compare(self, row: ShardRow) -> None:
        before = self._rows.get(row.key)
        self._rows[row.key] = row
        self.parents[row.key] = row.parents
        if before is None:
            return
        name = f"{stream_name(row.key.stream_arn)} {row.key.shard_id}"
        if before.position and (not row.position or row.position < before.position):
            self.went_back.append(
                f"{name}: checkpoint {before.position} became {row.position}"
            )
        if row.epoch < before.epoch:
            self.went_back.append(f"{name}: epoch {before.epoch} became {row.epoch}")
        if before.ended and not row.ended:
            self.went_back.append(f"{name}: it had ended, and no longer has")


def held_by(found: Snapshot, client_id: str) -> set[ShardKey]:
    """Return the shards that a client owns or that the plan gives it."""
    ranges = [m.range or () for m in found.members if m.client_id == client_id]
    return {
        row.key
        for shards in found.shards.values()
        for row in shards
        if not row.ended
        and (
            row.owner_id == client_id
            or any(
                arn == row.key.stream_arn and first <= row.first_hash <= last
                for range_ in ranges
                for arn, first, last in range_
            )
        )
    }
