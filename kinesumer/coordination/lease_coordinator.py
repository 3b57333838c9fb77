"""Claim and release the shards of one session."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from kinesumer.consuming.delivery_protocol import DeliveryProtocol
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.consuming.read_place import ReadPlace
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.held_shards import HeldShards, IsolationGuard
from kinesumer.coordination.membership import DeadSessions
from kinesumer.coordination.pauses import PauseCache
from kinesumer.coordination.shard_end import ShardEndHandler
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.state_store import PARALLEL_WRITES
from kinesumer.coordination.store_queries import POLL_SECONDS, read_range
from kinesumer.core import claims
from kinesumer.core.liveness import Lease, interval_seconds
from kinesumer.errors import CorruptRowError, StoreThrottledError, StoreUnavailableError
from kinesumer.model.incidents import IncidentKind
from kinesumer.model.owned import RevokeReason
from kinesumer.model.positions import Position
from kinesumer.model.rows import Deaths, MemberRow, ShardRow
from kinesumer.model.streams import Range, ShardKey
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import wait_and_clear
from kinesumer.wire import rows, shard_writes
from kinesumer.wire.shard_writes import with_deaths

# While shards in the range are unclaimed, the rows are read each POLL_SECONDS. After 40
# reads, which take longer than the default lease of a dead owner, the slow interval
# applies, which also interrupts many claims. A second hardly delays a claim.
SLOW_POLL_SECONDS = 1.0
POLLS_BEFORE_SLOW = 40
# The interval if all shards are claimed. Chosen: plans and notices cause reads at once.
FULL_POLL_SECONDS = 60.0


class Claim(NamedTuple):
    """A claim, which is sent unchanged until the store answers."""

    row: ShardRow
    nonce: str
    deaths: Deaths | None  # the deaths to store, if an owner has died


class LeaseCoordinator:
    """Claims and releases a session's shards, as plans and operators demand."""

    def __init__(
        self,
        context: ClientContext,
        lease: Lease,
        member: MemberRow,
        streams: Mapping[str, OpenStream],
        buffer: PrefetchBuffer,
        dead: set[str],
        delivery: DeliveryProtocol,
    ) -> None:
        """Create the coordinator of ``member``'s session.

        ``dead`` holds the sessions known to be dead. MemberWatcher adds more.
        """
        self.shards: HeldShards = HeldShards(context, member.session, buffer, delivery)
        # Shards in the range that are still to be claimed.
        self.pending: list[ShardRow] = []
        self._context = context
        self._lease = lease
        self._member = member
        self._streams = streams
        self._buffer = buffer
        self._callbacks = delivery.callbacks
        self._dead_sessions = DeadSessions(context, member.session, dead)
        self._shard_ends = ShardEndHandler(context, streams, self.shards)
        self._requested_arns = member.streams
        self.range: Range = ()  # the range that the plan gives this session
        self._wake = asyncio.Event()
        # For each held shard outside the range, the time since which it has been there.
        self._moving: dict[ShardKey, float] = {}
        self._releasing: set[ShardKey] = set()
        self._pause_cache = PauseCache(context)
        # The number of the last notice of an operator's change that was applied.
        self._applied_notice = -1
        self._is_over = False
        self._isolation = IsolationGuard(
            context, member.session, streams, delivery, self.on_rejected
        )
        self._open_claims: dict[ShardKey, Claim] = {}  # claims that got no answer
        # ARNs of the streams whose identity was checked.
        self._confirmed_streams: set[str] = set()
        # Positions that Kinesis has rejected.
        self._rejected: dict[ShardKey, tuple[Position | None, CorruptRowError]] = {}
        self._next_read = 0.0
        self._polls = 0
        self._tasks: asyncio.TaskGroup

    # --- calls from outside ---------------------------------------------------------

    def update_member(self, member: MemberRow) -> None:
        """Record this session's own member row, and apply the row's range at once."""
        before = self._member
        self._member = member
        if member.range is not None:
            self.range = self._requested_parts(member.range)
        if member.plan != before.plan or member.notice > before.notice:
            self.poll_now()

    def restrict(self, requested_arns: frozenset[str]) -> None:
        """Give up all shards of other streams at once, without waiting for a plan."""
        self._requested_arns = requested_arns
        self.range = self._requested_parts(self.range)
        for key, owned in self.shards.by_key.items():
            if key.stream_arn not in requested_arns:
                self._begin_hand_over(owned, "moved")
        self._wake.set()

    def poll_now(self) -> None:
        """Read the shard rows in the range as soon as possible."""
        self._next_read, self._polls = 0.0, 0
        self._wake.set()

    async def run(self) -> None:
        """Claim and release until cancelled or until the session is dead."""
        self.shards.wake_on_loss(self._wake)
        async with asyncio.TaskGroup() as self._tasks:
            try:
                while not self._lease.dead:
                    await self.run_once()
                    await wait_and_clear(self._wake, self._pause())
            finally:
                self._is_over = True

    def on_rejected(self, owned: OwnedShard, now: ShardRow | None) -> None:
        """Handle a rejected commit: the shard was seeked or taken over."""
        if now is not None and claims.was_seeked(owned.row, now):
            self._release_seeked(owned)
        else:
            self.shards.drop(owned)

    # --- the loop -------------------------------------------------------------------

    async def run_once(self) -> None:
        """Release shards outside the range, then claim those inside."""
        self.shards.drop_lost()
        self._release_outside()
        # If the lease has run out, another client may be about to fence this session.
        if not self._lease.permits(self._context.clock.now()):
            return
        # Repeat claims without an answer first, since they may have been applied.
        await self._claim_each(self._open_claims.values())
        now = self._context.clock.now()
        if now >= self._next_read:
            self._next_read = now + FULL_POLL_SECONDS
            try:
                with self._context.telemetry.measure("round"):
                    await self._claim_in_range()
            except StoreUnavailableError as error:
                self._context.failure_log.record_failure("state store", error)
                self._next_read = now + SLOW_POLL_SECONDS

    def _pause(self) -> float:
        now = self._context.clock.now()
        if self._open_claims or self._moving or not self._lease.permits(now):
            return POLL_SECONDS
        return min(max(0.0, self._next_read - now), FULL_POLL_SECONDS)

    def _requested_parts(self, range_: Range) -> Range:
        """Return the parts of a range whose streams are still requested."""
        return tuple(part for part in range_ if part.stream_arn in self._requested_arns)

    def _release_outside(self) -> None:
        heartbeat = self._context.config.heartbeat_interval_seconds
        # The next owner learns of the plan by a heartbeat, and its answer takes time.
        delay = 1.1 * interval_seconds(heartbeat, self._member.clients)
        self._moving, due = claims.to_release(
            {key: owned.row.first_hash for key, owned in self.shards.by_key.items()},
            self.range,
            self._moving,
            self._context.clock.now(),
            delay,
        )
        for key in due:
            self._begin_hand_over(self.shards.by_key[key], "moved")

    def _begin_hand_over(self, owned: OwnedShard, reason: RevokeReason) -> None:
        # A cancelled task group takes no more tasks, but this may still be called.
        if owned.key not in self._releasing and not self._is_over:
            self._releasing.add(owned.key)
            self._tasks.create_task(self._hand_over(owned, reason))

    async def _hand_over(self, owned: OwnedShard, reason: RevokeReason) -> None:
        started = self._context.clock.now()
        drain = self._context.config.drain_timeout_seconds
        with self._context.telemetry.measure("hand_over", owned.key.stream_arn):
            await self.shards.release(owned, drain, reason)
        self._releasing.discard(owned.key)
        self.poll_now()
        logger.info(
            "%s %s %s after %.3f s",
            "gave up the old position of" if owned.seeked else "released",
            owned.source.stream,
            owned.source.shard_id,
            self._context.clock.now() - started,
            extra=owned.log_fields,
        )

    async def _claim_in_range(self) -> None:
        stored = await self._read_rows()
        await self._confirm_streams()
        decision = self._decide_claims(stored)
        if await self._dead_sessions.verify(decision.verify):
            decision = self._decide_claims(stored)
        await self.shards.stale.release(self.range, decision.stale, self._busy_keys())
        self.pending = decision.pending
        pause = FULL_POLL_SECONDS
        if decision.pending:
            self._polls += 1
            slow = self._polls > POLLS_BEFORE_SLOW
            pause = SLOW_POLL_SECONDS if slow else POLL_SECONDS
        elif claims.starts_inside_shard(self.range, stored):
            pause = claims.look_seconds(len(stored))
        # Keep an earlier time: poll_now() may have been called during the reads.
        self._next_read = min(self._next_read, self._context.clock.now() + pause)
        if await self._claim_each(map(self._new_claim, decision.claim)):
            self._next_read = self._context.clock.now()

    def _new_claim(self, row: ShardRow) -> Claim:
        deaths = self._isolation.deaths_at_claim(row)
        return Claim(row, self._context.new_id(), deaths)

    async def _claim_each(self, pending: Iterable[Claim]) -> bool:
        """Claim shards for a limited time, in parallel; return whether some are left.

        The time is limited, since the loop must also release shards.
        """
        clock, waiting = self._context.clock, deque(pending)
        until = clock.now() + SLOW_POLL_SECONDS

        async def claim() -> None:
            while waiting:
                if not await self._claim(waiting.popleft()):
                    return
                now = clock.now()
                if now >= until or self._wake.is_set() or not self._lease.permits(now):
                    return

        parallel = min(PARALLEL_WRITES, len(waiting))
        await asyncio.gather(*(claim() for _ in range(parallel)))
        return bool(waiting)

    async def _confirm_streams(self) -> None:
        """Check once that no stream in the range was recreated.

        Raises StreamRecreatedError, so that no shard of a new stream is claimed.
        """
        for arn in sorted(
            {part.stream_arn for part in self.range} - self._confirmed_streams
        ):
            key = rows.stream_key(self._context.app, arn)
            row = await self._context.store.get(key)
            stored = self._context.parse_row(rows.read_stream, row)
            if stored is not None:
                check_identity(stored, self._streams[arn].info)
                self._confirmed_streams.add(arn)

    async def _read_rows(self) -> list[ShardRow]:
        """Read the shard rows in the range, and apply operators' changes in them."""
        # Note the number before the rows are read: a notice that arrives meanwhile must
        # cause another read.
        notice = self._member.notice
        noticed = notice > self._applied_notice
        await self._pause_cache.refresh(noticed=noticed)
        inside = await read_range(self._context, self.range, consistent=noticed)
        self._applied_notice = notice
        for row in inside:
            if (owned := self.shards.by_key.get(row.key)) is not None:
                self._apply_operator_change(owned, row)
        return [row for row in inside if not self._was_rejected(row)]

    def _apply_operator_change(self, owned: OwnedShard, now: ShardRow) -> None:
        """Give up a held shard that was seeked or paused since it was claimed."""
        if claims.was_seeked(owned.row, now):
            self._release_seeked(owned)
        elif now.epoch == owned.row.epoch and self._pause_cache.pauses.cover(now):
            self._begin_hand_over(owned, "paused")

    def _release_seeked(self, owned: OwnedShard) -> None:
        """Release a shard, so that it is claimed again at its new position."""
        self.shards.note_seek(owned)
        self._begin_hand_over(owned, "seeked")

    def _decide_claims(self, stored: list[ShardRow]) -> claims.ClaimDecision:
        busy, limit = self._busy_keys(), self._context.config.max_shards
        others = self.shards.stale.keys - busy - {row.key for row in stored}
        return claims.decide_claims(
            stored,
            busy,
            self._dead_sessions.dead,
            self._member.session,
            self._pause_cache.pauses,
            inf if limit is None else limit - len(busy) - len(others),
        )

    def _busy_keys(self) -> set[ShardKey]:
        return self.shards.by_key.keys() | self._open_claims.keys()

    def _was_rejected(self, row: ShardRow) -> bool:
        """Return whether Kinesis has rejected the position in a row; report if so."""
        position, error = self._rejected.get(row.key, (None, None))
        if error is None or position != row.position:
            return False
        self._context.failure_log.record_corrupt_row(error)
        kind, cause = IncidentKind.REJECTED_POSITION, error.__cause__ or ""
        self._context.incidents.note(kind, *row.key, error=cause)
        return True

    async def _claim(self, claim: Claim) -> bool:
        """Claim a shard once; return False if the store doesn't answer.

        A claim without an answer is repeated with the same epoch. So at most one of its
        requests is applied, even if the first one arrives late.
        """
        (row, nonce, deaths), context = claim, self._context
        write = shard_writes.claim(context.app, row, self._member, nonce, row.owner)
        write = with_deaths(write, deaths)
        try:
            written = await context.store.write(write)
        except StoreThrottledError as error:
            # The write wasn't applied, so the next poll may claim with another nonce.
            context.failure_log.record_failure("state store", error)
            return True
        except StoreUnavailableError as error:
            self._open_claims[row.key] = claim
            context.failure_log.record_failure("state store", error)
            return False
        won = context.parse_row(rows.read_shard, written.row)
        # The claim was won, but the row is corrupt: repeat the claim until somebody
        # repairs the row.
        if won is None and written.row and written.row.get("claim") == nonce:
            self._open_claims[row.key] = claim
            return True
        self._open_claims.pop(row.key, None)
        if won is None or self._lease.dead:
            return True
        # Don't rely on ``written.applied``: an earlier attempt may have won.
        is_mine = won.owner == self._member.session
        if is_mine and won.claim == nonce:
            self._start_shard(won)
        elif is_mine or won.epoch == row.epoch:
            # Either the shard was seeked after this claim was applied, or it was paused
            # before. When a pause ends, a delayed request of the claim may still win.
            self.shards.stale.add(won)
        return True

    def _start_shard(self, row: ShardRow) -> None:
        app, config = self._context.app, self._context.config
        # One claim is normal; several within a minute begin an incident.
        self._context.incidents.note(IncidentKind.REPEATED_CLAIM, *row.key)
        lease = self.shards.lease_of(row, self._lease)
        owned = OwnedShard(app, row, lease, config.max_uncommitted_records)
        if self._callbacks is not None:
            owned.calls = self._callbacks.begin(owned)
        self.shards.by_key[row.key] = owned
        self.shards.stale.forget(row.key)
        if self._isolation.admit(owned):
            stream = self._streams[row.key.stream_arn]
            place = ReadPlace(self._context, stream, owned, self._buffer)
            reader = ShardReader(place)
            owned.task = self._tasks.create_task(self._read(owned, reader))
            self._tasks.create_task(self._wait_for_end(owned))
        logger.info(
            "claimed %s %s, epoch %d",
            owned.source.stream,
            row.key.shard_id,
            row.epoch,
            extra=owned.log_fields,
        )

    async def _read(self, owned: OwnedShard, reader: ShardReader) -> None:
        """Read a shard; give it up if Kinesis rejects the position in its row."""
        if owned.calls is not None and not await owned.calls.assign():
            return
        try:
            await reader.run()
        except CorruptRowError as error:
            self._rejected[owned.key] = owned.row.position, error
            self._begin_hand_over(owned, "moved")

    async def _wait_for_end(self, owned: OwnedShard) -> None:
        if await self._shard_ends.wait_and_close(owned) or owned.seeked:
            self.poll_now()
