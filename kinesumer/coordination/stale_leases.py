"""Shards whose rows name this session as owner although it doesn't hold them.

A seek keeps the owner, which may still be delivering, and raises the epoch. A claim
that a pause refused may be sent twice, and be applied after the pause. No other session
may claim such shards while this session is alive, so this session releases them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.core import claims
from kinesumer.core.liveness import MAX_REQUEST_DELAY_SECONDS
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Range, ShardKey
    from kinesumer.runtime.context import ClientContext


class StaleLeases:
    """One session's stale leases.

    Only the lease coordinator's loop releases them, since only that loop knows of all
    open claims.
    """

    def __init__(self, context: ClientContext, session: str) -> None:
        self._context = context
        self._session = session
        self._known: dict[ShardKey, tuple[ShardRow, float]] = {}
        """Each with the time until which it is checked."""

    def add(self, row: ShardRow) -> None:
        """Note a row that refused a write of this session."""
        self._known[row.key] = (
            row,
            self._context.clock.now() + MAX_REQUEST_DELAY_SECONDS,
        )

    def forget(self, key: ShardKey) -> None:
        """Forget a shard, since the session holds it now."""
        self._known.pop(key, None)

    async def release(
        self, range_: Range, unclaimable: Sequence[ShardRow], busy: Container[ShardKey]
    ) -> None:
        """Release stale leases that lie outside the range or can't be claimed."""
        for row in unclaimable:
            self.add(row)
        keys = {row.key for row in unclaimable}
        for row, until in list(self._known.values()):
            inside = claims.contains(range_, row.key.stream_arn, row.first_hash)
            if row.key not in busy and (row.key in keys or not inside):
                await self._release(row, until)

    async def _release(self, row: ShardRow, until: float) -> None:
        """Release a shard if its row, read now, still names this session."""
        store, key = self._context.store, writes.shard_row_key(self._context.app, row)
        now = self._context.parse_row(rows.read_shard, await store.get(key))
        if now is not None and now.owner == self._session:
            write = writes.release(self._context.app, now, None)
            if (await store.write(write)).applied:
                self.forget(row.key)
        elif self._context.clock.now() >= until:
            self.forget(row.key)
