"""Keep the shards that one session holds, and release them.

At a claim, the deaths of former owners are counted. They decide how a shard is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence, Set
from functools import partial
from math import isfinite

from kinesumer.consuming.delivery_protocol import DeliveryProtocol
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.streams import OpenStream
from kinesumer.consuming.suspects import Suspects, Turn
from kinesumer.core import claims
from kinesumer.core.liveness import (
    MAX_REQUEST_DELAY_SECONDS,
    Lease,
    ShardLease,
)
from kinesumer.core.progress import after_death
from kinesumer.errors import PoisonRecordError
from kinesumer.model.owned import RevokeReason
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence
from kinesumer.model.rows import Deaths, ShardRow
from kinesumer.model.streams import Range, ShardKey
from kinesumer.ports import Write
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows, shard_writes

OnRejected = Callable[[OwnedShard, ShardRow | None], None]


class HeldShards:
    """The shards that one session holds. If the session dies, it loses all of them."""

    def __init__(
        self,
        context: ClientContext,
        session: str,
        buffer: PrefetchBuffer,
        delivery: DeliveryProtocol,
    ) -> None:
        self.by_key: dict[ShardKey, OwnedShard] = {}
        # Shards with processed records whose positions couldn't be stored, until
        # ``commit()`` reports them.
        self.lost: set[ShardKey] = set()
        self.stale: StaleLeases = StaleLeases(context, session)
        self._context = context
        self._buffer = buffer
        self._delivery = delivery
        # The last epoch of each shard that this session lost by a seek.
        self._seeked_epochs: dict[ShardKey, int] = {}

    def was_seeked(self, fence: Fence) -> bool:
        """Return whether the shard was seeked, so that acks of this epoch are void."""
        return fence.epoch <= self._seeked_epochs.get(fence.shard, -1)

    def note_seek(self, owned: OwnedShard) -> None:
        """Record that an operator has changed a shard's position."""
        owned.seek_away()
        self._seeked_epochs[owned.key] = owned.row.epoch

    def drop(self, owned: OwnedShard) -> None:
        """Give up a shard that another session owns now."""
        # Update the progress first, since ``commit()`` must report done records whose
        # position can't be stored.
        self._delivery.sync_progress()
        owned.lose()
        self._context.telemetry.count("lost_leases", owned.key.stream_arn)
        self._buffer.drop(owned)
        if owned.position is not None:
            self.lost.add(owned.key)
        if self.by_key.get(owned.key) is owned:
            del self.by_key[owned.key]
        if owned.calls is not None:
            owned.calls.revoke("lost")

    def lease_of(self, row: ShardRow, session: Lease) -> Lease:
        """Return the right to deliver a shard that the session has claimed."""
        leases = self._context.row_leases
        if leases is None:
            return session
        return ShardLease(session, partial(leases.deadline, row.key, row.epoch))

    def wake_on_loss(self, wake: asyncio.Event) -> None:
        """Set an event when others have taken a row's lease. Call it on its loop."""
        if (leases := self._context.row_leases) is not None:
            loop = asyncio.get_running_loop()
            leases.when_lost(partial(loop.call_soon_threadsafe, wake.set))

    def drop_lost(self) -> None:
        """Give up the shards whose rows' leases others have taken."""
        for owned in list(self.by_key.values()):
            if owned.lease.is_lost:
                self.drop(owned)

    def drop_all(self) -> None:
        """Give up all shards, since the session is dead."""
        for owned in list(self.by_key.values()):
            self.drop(owned)

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has processed."""
        self._delivery.sync_progress()

    async def release(
        self, owned: OwnedShard, drain_seconds: float, reason: RevokeReason
    ) -> None:
        """Stop reading a shard, wait for user code, store the position, release it.

        The wait includes the call of ``on_revoked``. Without ``drain_seconds``, wait
        only for this call.
        """
        await self.drain(owned, drain_seconds, reason)
        await self.hand_back(owned)

    async def drain(
        self, owned: OwnedShard, drain_seconds: float, reason: RevokeReason
    ) -> None:
        """Stop reading a shard, and wait for user code, as ``release()`` does."""
        began, left = self._context.clock.now(), drain_seconds
        self._delivery.sync_progress()
        owned.revoke()
        self._buffer.drop(owned)
        if owned.calls is not None:
            seconds = self._context.config.drain_timeout_seconds
            is_in_use = drain_seconds > 0
            await owned.calls.release(reason, seconds, waits_for_user=is_in_use)
            # With ``commit="manual"`` records may still be acknowledged.
            left -= self._context.clock.now() - began
        if not await owned.drained(max(0.0, left)) and drain_seconds:
            logger.warning(
                "%s %s: user code didn't finish within %g s; the next owner repeats "
                "its records",
                owned.source.stream,
                owned.source.shard_id,
                drain_seconds,
                extra=owned.log_fields,
            )

    async def hand_back(self, owned: OwnedShard) -> None:
        """Store the position of a drained shard, and release it."""
        # Records may have been finished while the shard drained.
        self._delivery.sync_progress()
        app, position = self._context.app, owned.position
        forgotten = owned.forgotten_attributes(self._context.clock.now())
        write = shard_writes.release(app, owned.row, position)
        await self.write_as_owner(owned, shard_writes.forgetting(write, forgotten))

    async def write_as_owner(self, owned: OwnedShard, write: Write) -> bool:
        """Send a write that gives up a shard; return whether the position is stored."""
        position = owned.position
        written = await self._context.write(write)
        # During the write the shard may have been dropped and claimed again.
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
            if owned.position is not None:  # records were acknowledged during the write
                self.lost.add(owned.key)
            return True
        owned.lose()
        # A concurrent release or end of the shard may have stored the position.
        if position is not None and not claims.is_stored(
            owned.progress, owned.row, now, position
        ):
            self.lost.add(owned.key)
        return False


class StaleLeases:
    """Releases shards whose rows name this session although it doesn't hold them.

    This has two causes. A seek raises the epoch but keeps the owner, which may still be
    delivering. And if a claim was refused because of a pause, a delayed request of the
    same claim may be applied after the pause. No other session may claim such shards
    while this session is alive. Only the lease coordinator's loop calls this class,
    since only that loop knows all open claims.
    """

    def __init__(self, context: ClientContext, session: str) -> None:
        self._context = context
        self._session = session
        # For each shard, its row and the time until which this row is read again.
        self._known: dict[ShardKey, tuple[ShardRow, float]] = {}

    @property
    def keys(self) -> Set[ShardKey]:
        """The shards that this session may own, or may get by a delayed claim.

        An ended shard can't be claimed, unless it is read again.
        """
        return {key for key, (row, _) in self._known.items() if not row.ended}

    def add(self, row: ShardRow) -> None:
        """Record a shard whose row may name this session although it isn't held."""
        self._known[row.key] = (
            row,
            self._context.clock.now() + MAX_REQUEST_DELAY_SECONDS,
        )

    def forget(self, key: ShardKey) -> None:
        """Forget a shard that the session needn't release any more."""
        self._known.pop(key, None)

    async def release(
        self, range_: Range, unclaimable: Sequence[ShardRow], busy: Container[ShardKey]
    ) -> None:
        """Release stale shards that lie outside the range or can't be claimed."""
        for row in unclaimable:
            self.add(row)
        keys = {row.key for row in unclaimable}
        for row, until in list(self._known.values()):
            inside = claims.contains(range_, row.key.stream_arn, row.first_hash)
            if row.key not in busy and (row.key in keys or not inside):
                await self._release(row, until)

    async def _release(self, row: ShardRow, until: float) -> None:
        """Read a shard's row, and release the shard if the row names this session."""
        store, key = (
            self._context.store,
            shard_writes.shard_row_key(self._context.app, row),
        )
        now = self._context.parse_row(rows.read_shard, await store.get(key))
        if now is not None and now.owner == self._session:
            write = shard_writes.release(self._context.app, now, None)
            if (await store.write(write)).applied:
                self.forget(row.key)
        elif self._context.clock.now() >= until:
            self.forget(row.key)
        elif now is not None and now.epoch > row.epoch:
            # After a later claim or seek, no delayed claim can be applied any more.
            self.forget(row.key)
        elif now is not None:
            self._known[row.key] = now, until


class IsolationGuard:
    """Decides how the shards of one session are read after deaths of their owners."""

    def __init__(
        self,
        context: ClientContext,
        session: str,
        streams: Mapping[str, OpenStream],
        delivery: DeliveryProtocol,
        on_rejected: OnRejected,
    ) -> None:
        """``on_rejected`` handles a write that the store rejects."""
        self._context = context
        self._session = session
        self._streams = streams
        self._delivery = delivery
        self._on_rejected = on_rejected
        self._turn = Turn()

    def deaths_at_claim(self, row: ShardRow) -> Deaths | None:
        """Return the deaths to store with a claim, or None if no owner has died.

        A shard that another session owns is claimed only if that session is dead.
        """
        if row.owner in ("", self._session):
            return None
        stream = self._streams[row.key.stream_arn]
        now = stream.service_time.latest()
        return after_death(row, now if isfinite(now) else self._context.clock.wall())

    def admit(self, owned: OwnedShard) -> bool:
        """Return whether a claimed shard is read, after preparing how it is read.

        It isn't read if a record kills its readers and can't become a dead letter.
        """
        row = owned.row
        if row.poison is not None:
            if not self._delivery.has_dead_letters(owned.key.stream_arn):
                self._stop(owned, row.poison)
                return False
        if row.deaths.counted:
            owned.suspects = self._suspects(owned)
        return True

    def _stop(self, owned: OwnedShard, poison: Position) -> None:
        owned.stopped_by = PoisonRecordError(*owned.key, poison.text)
        logger.error(
            "%s; the shard stops before it: seek the shard past the record, or give "
            "run() dead_letters=",
            owned.stopped_by,
            extra=owned.log_fields,
        )

    def _suspects(self, owned: OwnedShard) -> Suspects:
        config = self._context.config
        if owned.row.is_isolated:
            logger.warning(
                "%s %s: %d owners died at its position; it is read in isolation, one "
                "record at a time",
                owned.source.stream,
                owned.source.shard_id,
                owned.row.deaths.counted,
                extra=owned.log_fields,
            )
        return Suspects(
            owned.row,
            config.max_uncommitted_records,
            partial(self._note_tried, owned),
            self._turn,
            partial(self._is_in_use, owned),
            acks_late=config.commit == "manual",
            commit_interval_seconds=config.commit_interval_seconds,
        )

    def _is_in_use(self, owned: OwnedShard) -> bool:
        """Return whether user code has records of a shard, or gets them again."""
        self._delivery.sync_progress()
        return self._delivery.has_records(owned, waiting=True)

    async def _note_tried(
        self, owned: OwnedShard, position: Position | None, number: int
    ) -> None:
        """Let the row name a record before user code gets it, or name none."""
        key = shard_writes.shard_row_key(self._context.app, owned.row)
        note = shard_writes.note_tried(key, owned.row, position, number)
        written = await self._context.write(note)
        if written.applied or not owned.can_store:
            return
        now = self._context.parse_row(rows.read_shard, written.row)
        # In the same epoch, the row has a later note.
        if now is None or now.epoch != owned.row.epoch:
            self._on_rejected(owned, now)
