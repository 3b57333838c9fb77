"""Checks of the state store's rows during a run: no checkpoint or epoch goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.admin.snapshot import Snapshot, read_snapshot
from kinesumer.model.streams import stream_name

if TYPE_CHECKING:
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import StateStore


class StoreChecker:
    """Reads snapshots, and keeps the latest one, the parents, and all regressions."""

    def __init__(self, store: StateStore, app: str) -> None:
        self.latest = Snapshot([], None, [], {})
        self.parents: dict[ShardKey, frozenset[str]] = {}
        self.regressions: list[str] = []
        self.shards_of_killed: dict[str, set[ShardKey]] = {}
        """The shards that each killed client held until its death was noticed."""
        self._store, self._app = store, app
        self._rows: dict[ShardKey, ShardRow] = {}

    async def check(self) -> Snapshot:
        """Read all rows, and compare them with the previous ones."""
        latest = await read_snapshot(self._store, self._app)
        for shards in latest.shards.values():
            for row in shards:
                self._compare(row)
        for member in latest.alive:
            # Until its lease ends, the plan may give a killed client more shards.
            if member.client_id in self.shards_of_killed:
                held = shards_of(latest, member.client_id)
                self.shards_of_killed[member.client_id] |= held
        self.latest = latest
        return latest

    def committed(self, key: ShardKey) -> str:
        """Return the sequence number of a shard's checkpoint; "" if it has none."""
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
            self.regressions.append(
                f"{name}: checkpoint {before.position} became {row.position}"
            )
        if row.epoch < before.epoch:
            self.regressions.append(f"{name}: epoch {before.epoch} became {row.epoch}")
        if before.ended and not row.ended:
            self.regressions.append(f"{name}: the mark that it has ended was lost")


def shards_of(rows: Snapshot, client_id: str) -> set[ShardKey]:
    """Return the open shards that a client owns or that the plan gives it."""
    ranges = [m.range or () for m in rows.members if m.client_id == client_id]
    return {
        row.key
        for shards in rows.shards.values()
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
