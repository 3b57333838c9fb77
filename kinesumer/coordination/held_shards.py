"""The shards that one session holds, and how it gives them up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kinesumer.consuming.checkpointer import is_stored
from kinesumer.coordination.stale_leases import StaleLeases
from kinesumer.core import claims
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import LOST_LEASES
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.model.records import Fence
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import Write
    from kinesumer.runtime.context import ClientContext


class ProgressSource(Protocol):
    """Knows what user code has done."""

    def sync_progress(self) -> None:
        """Update the shards' progress by what user code has done."""
        ...


class HeldShards:
    """One session's shards. When the session dies it loses all of them."""

    def __init__(
        self,
        context: ClientContext,
        session: str,
        buffer: PrefetchBuffer,
        delivery: ProgressSource,
    ) -> None:
        self.by_key: dict[ShardKey, OwnedShard] = {}
        self.lost: set[ShardKey] = set()
        """Shards with processed records whose positions couldn't be stored, until
        ``commit()`` reports them."""
        self.stale = StaleLeases(context, session)
        self._context = context
        self._buffer = buffer
        self._delivery = delivery
        self._seeked_epochs: dict[ShardKey, int] = {}
        """The last epoch of each shard that a seek took away."""

    def was_seeked(self, fence: Fence) -> bool:
        """Return whether a seek came after this epoch, which makes its acks void."""
        return fence.epoch <= self._seeked_epochs.get(fence.shard, -1)

    def note_seek(self, owned: OwnedShard) -> None:
        """Note that an operator has changed the position of a shard."""
        owned.seek_away()
        self._seeked_epochs[owned.key] = owned.row.epoch

    def drop(self, owned: OwnedShard) -> None:
        """Give up a shard that another session owns now."""
        self._delivery.sync_progress()
        owned.lose()
        self._context.telemetry.count(LOST_LEASES, owned.key.stream_arn)
        self._buffer.drop(owned)
        if owned.position is not None:
            self.lost.add(owned.key)
        if self.by_key.get(owned.key) is owned:
            del self.by_key[owned.key]

    def drop_all(self) -> None:
        """Give up all shards, since the session is dead."""
        for owned in list(self.by_key.values()):
            self.drop(owned)

    def sync_progress(self) -> None:
        """Update the shards' progress by what user code has done."""
        self._delivery.sync_progress()

    async def release(self, owned: OwnedShard, drain_seconds: float) -> None:
        """Stop reading a shard, wait for user code, store the position, release it."""
        self._delivery.sync_progress()
        owned.revoke()
        self._buffer.drop(owned)
        if not await owned.drained(drain_seconds) and drain_seconds:
            logger.warning(
                "%s %s: user code didn't finish within %g s; the next owner repeats "
                "its records",
                owned.source.stream,
                owned.source.shard_id,
                drain_seconds,
                extra=owned.log_fields,
            )
        self._delivery.sync_progress()
        app, position = self._context.app, owned.position
        await self.write_as_owner(owned, writes.release(app, owned.row, position))

    async def write_as_owner(self, owned: OwnedShard, write: Write) -> bool:
        """Give a shard up by a write; return whether its position is stored."""
        position = owned.position
        written = await self._context.write(write)
        if self.by_key.get(owned.key) is owned:
            del self.by_key[owned.key]
        now = self._context.parse_row(rows.read_shard, written.row)
        if now is not None and claims.was_seeked(owned.row, now):
            self.note_seek(owned)
            self.stale.add(now)
            return False
        if written.applied or (
            now is not None and claims.was_applied(now, write, position)
        ):
            if position is not None:
                owned.stored(position)
            if owned.position is not None:  # acknowledged during the write
                self.lost.add(owned.key)
            return True
        owned.lose()
        # A release and an end may run at the same time: either may have stored it.
        if position is not None and not is_stored(owned, now, position):
            self.lost.add(owned.key)
        return False
