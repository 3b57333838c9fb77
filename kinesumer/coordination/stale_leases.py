"""Shards whose rows name this session as owner though it doesn't hold them, or may.

A seek leaves the owner, who may be delivering, and takes the epoch away. A claim that a
pause refused may be on its way a second time, and win when the pause is over. Nobody
else may claim such shards while the session lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.coordination.membership import MAX_REQUEST_DELAY_SECONDS
from kinesumer.core import claims
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Range, ShardKey
    from kinesumer.runtime.context import ClientContext


class StaleLeases:
    """One session's. Only its round may touch them: it knows of every claim."""

    def __init__(self, context: ClientContext, session: str) -> None:
        self._context = context
        self._session = session
        self._known: dict[ShardKey, tuple[ShardRow, float]] = {}
        """And until when to look at them."""

    def add(self, row: ShardRow) -> None:
        """Note a row that refused what the session wrote."""
        self._known[row.key] = (
            row,
            self._context.clock.now() + MAX_REQUEST_DELAY_SECONDS,
        )

    def forget(self, key: ShardKey) -> None:
        """Note that the session holds a shard."""
        self._known.pop(key, None)

    async def release(
        self, range_: Range, unwanted: Sequence[ShardRow], busy: Container[ShardKey]
    ) -> None:
        """Release what lies outside the range, and what else can't be claimed now."""
        for row in unwanted:
            self.add(row)
        keys = {row.key for row in unwanted}
        for row, until in list(self._known.values()):
            inside = claims.contains(range_, row.key.stream_arn, row.first_hash)
            if row.key not in busy and (row.key in keys or not inside):
                await self._release(row, until)

    async def _release(self, row: ShardRow, until: float) -> None:
        """Release a shard if it is ours; an old read may have shown it so."""
        store, key = self._context.store, writes.shard_row_key(self._context.app, row)
        now = self._context.parse_row(rows.read_shard, await store.get(key))
        if now is not None and now.owner == self._session:
            write = writes.release(self._context.app, now, None)
            if (await store.write(write)).applied:
                self.forget(row.key)
        elif self._context.clock.now() >= until:
            self.forget(row.key)
