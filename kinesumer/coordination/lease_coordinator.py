"""One session's shards: which to claim and release; reads rows, decides, writes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.coordination.held_shards import HeldShards
from kinesumer.coordination.membership import DeadSessions
from kinesumer.coordination.paced_store import PARALLEL_WRITES
from kinesumer.coordination.pauses import PauseCache
from kinesumer.coordination.shard_end import ShardEndHandler
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.store_queries import read_range
from kinesumer.core import claims
from kinesumer.core.liveness import interval_seconds
from kinesumer.errors import (
    CorruptRowError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import HAND_OVER_DURATION, ROUND_DURATION
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.coordination.held_shards import ProgressSource
    from kinesumer.core.liveness import Lease
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import Range, ShardKey
    from kinesumer.runtime.context import ClientContext

POLL_SECONDS = 0.25
"""How often the rows are read while shards in the range are still to be claimed."""
SLOW_POLL_SECONDS = 1.0
POLLS_BEFORE_SLOW = 40
FULL_POLL_SECONDS = 60.0
"""How often the rows are read while nothing is to be claimed."""
CLAIMING_SECONDS = 1.0
"""Maximum time for claims between two reads of the rows."""


class Claim(NamedTuple):
    """A claim to send, and to repeat unchanged until it is answered."""

    row: ShardRow
    nonce: str
    dead_owner: str


class LeaseCoordinator:
    """Claims and releases the shards of one session, as plans and operators say."""

    def __init__(
        self,
        context: ClientContext,
        lease: Lease,
        member: MemberRow,
        streams: Mapping[str, OpenStream],
        buffer: PrefetchBuffer,
        dead: set[str],
        delivery: ProgressSource,
    ) -> None:
        """Create it for the session of ``member``.

        ``dead`` holds the sessions that are known to be dead, and grows.
        """
        self.shards = HeldShards(context, member.session, buffer, delivery)
        self.pending: list[ShardRow] = []
        """Shards in the range that are still to be claimed."""
        self._context = context
        self._lease = lease
        self._member = member
        self._streams = streams
        self._buffer = buffer
        self._dead_sessions = DeadSessions(context, member.session, dead)
        self._shard_ends = ShardEndHandler(context, streams, self.shards)
        self._requested_arns = member.streams
        self._range: Range = ()
        self._wake = asyncio.Event()
        self._moving: dict[ShardKey, float] = {}
        """Since when held shards have been outside the range."""
        self._releasing: set[ShardKey] = set()
        self._pause_cache = PauseCache(context)
        self._applied_notice = -1
        """The last notice of operators whose changes were applied."""
        self._is_over = False
        self._open_claims: dict[ShardKey, Claim] = {}
        """Claims without an answer."""
        self._confirmed_streams: set[str] = set()
        """ARNs of the streams whose identity was checked."""
        self._rejected: dict[ShardKey, tuple[Position | None, CorruptRowError]] = {}
        """Positions that Kinesis has rejected."""
        self._next_read = 0.0
        self._polls = 0
        self._tasks: asyncio.TaskGroup

    # --- calls from outside ---------------------------------------------------------

    def update_member(self, member: MemberRow) -> None:
        """Note this session's own row, and apply a new range at once."""
        before = self._member
        self._member = member
        if member.range is not None:
            self._range = self._requested_parts(member.range)
        if member.plan != before.plan or member.notice > before.notice:
            self.poll_now()

    def restrict(self, requested_arns: frozenset[str]) -> None:
        """Give up the other streams at once, without waiting for a plan."""
        self._requested_arns = requested_arns
        self._range = self._requested_parts(self._range)
        for key, owned in self.shards.by_key.items():
            if key.stream_arn not in requested_arns:
                self._begin_hand_over(owned)
        self._wake.set()

    def poll_now(self) -> None:
        """Read the rows in the range soon."""
        self._next_read, self._polls = 0.0, 0
        self._wake.set()

    @property
    def range(self) -> Range:
        """The range that the plan gives this session."""
        return self._range

    async def run(self) -> None:
        """Claim and release until cancelled or until the session is dead."""
        async with asyncio.TaskGroup() as self._tasks:
            try:
                while not self._lease.dead:
                    await self.run_once()
                    try:
                        async with asyncio.timeout(self._pause()):
                            await self._wake.wait()
                    except TimeoutError:
                        pass
                    self._wake.clear()
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
        self._release_outside()
        if not self._lease.permits(self._context.clock.now()):
            return
        await self._claim_each(self._open_claims.values())
        now = self._context.clock.now()
        if now >= self._next_read:
            self._next_read = now + FULL_POLL_SECONDS
            try:
                with self._context.telemetry.measure(ROUND_DURATION):
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
        delay = 1.1 * interval_seconds(heartbeat, self._member.clients)
        self._moving, due = claims.to_release(
            {key: owned.row.first_hash for key, owned in self.shards.by_key.items()},
            self._range,
            self._moving,
            self._context.clock.now(),
            delay,
        )
        for key in due:
            self._begin_hand_over(self.shards.by_key[key])

    def _begin_hand_over(self, owned: OwnedShard) -> None:
        if owned.key not in self._releasing and not self._is_over:
            self._releasing.add(owned.key)
            self._tasks.create_task(self._hand_over(owned))

    async def _hand_over(self, owned: OwnedShard) -> None:
        started = self._context.clock.now()
        with self._context.telemetry.measure(HAND_OVER_DURATION, owned.key.stream_arn):
            await self.shards.release(owned, self._context.config.drain_timeout_seconds)
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
        await self.shards.stale.release(self._range, decision.stale, self._busy_keys())
        self.pending = decision.pending
        if decision.pending:
            self._polls += 1
            slow = self._polls > POLLS_BEFORE_SLOW
            pause = SLOW_POLL_SECONDS if slow else POLL_SECONDS
            self._next_read = self._context.clock.now() + pause
        elif claims.starts_inside_shard(self._range, stored):
            self._next_read = self._context.clock.now() + SLOW_POLL_SECONDS
        if await self._claim_each(
            Claim(row, self._context.new_id(), row.owner) for row in decision.claim
        ):
            self._next_read = self._context.clock.now()

    async def _claim_each(self, pending: Iterable[Claim]) -> bool:
        """Claim shards for a limited time, in parallel; return whether some are left.

        The limit lets the loop go on: it releases shards, too.
        """
        clock, waiting = self._context.clock, deque(pending)
        until = clock.now() + CLAIMING_SECONDS

        async def claim() -> None:
            while waiting:
                row, nonce, dead_owner = waiting.popleft()
                if not await self._claim(row, nonce, dead_owner):
                    return
                now = clock.now()
                if now >= until or self._wake.is_set() or not self._lease.permits(now):
                    return

        parallel = min(PARALLEL_WRITES, len(waiting))
        await asyncio.gather(*(claim() for _ in range(parallel)))
        return bool(waiting)

    async def _confirm_streams(self) -> None:
        """Check once that each stream in the range is the one that the group knows.

        Raises StreamRecreatedError, so that no shard of a new stream is claimed.
        """
        for arn in sorted(
            {part.stream_arn for part in self._range} - self._confirmed_streams
        ):
            key = rows.stream_key(self._context.app, arn)
            row = await self._context.store.get(key)
            stored = self._context.parse_row(rows.read_stream, row)
            if stored is not None:
                check_identity(stored, self._streams[arn].info)
                self._confirmed_streams.add(arn)

    async def _read_rows(self) -> list[ShardRow]:
        """Read the rows in the range, and apply what operators changed in them."""
        notice = self._member.notice
        noticed = notice > self._applied_notice
        await self._pause_cache.refresh(noticed=noticed)
        inside = await read_range(self._context, self._range, consistent=noticed)
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
            self._begin_hand_over(owned)

    def _release_seeked(self, owned: OwnedShard) -> None:
        """Give up a shard, to claim it again at its new position."""
        self.shards.note_seek(owned)
        self._begin_hand_over(owned)

    def _decide_claims(self, stored: list[ShardRow]) -> claims.ClaimDecision:
        return claims.decide_claims(
            stored,
            self._busy_keys(),
            self._dead_sessions.dead,
            self._member.session,
            self._pause_cache.pauses,
        )

    def _busy_keys(self) -> set[ShardKey]:
        return self.shards.by_key.keys() | self._open_claims.keys()

    def _was_rejected(self, row: ShardRow) -> bool:
        """Return whether Kinesis has rejected the position in a row; report it."""
        position, error = self._rejected.get(row.key, (None, None))
        if error is None or position != row.position:
            return False
        self._context.failure_log.record_corrupt_row(error)
        return True

    async def _claim(self, row: ShardRow, nonce: str, dead_owner: str) -> bool:
        """Claim a shard once; return False if the store doesn't answer.

        Such a claim is repeated until it is answered. It names the same epoch again, so
        that a delayed first request can't win later.
        """
        write = writes.claim(self._context.app, row, self._member, nonce, dead_owner)
        try:
            written = await self._context.store.write(write)
        except StoreThrottledError as error:
            self._context.failure_log.record_failure("state store", error)
            return True
        except StoreUnavailableError as error:
            self._open_claims[row.key] = Claim(row, nonce, dead_owner)
            self._context.failure_log.record_failure("state store", error)
            return False
        won = self._context.parse_row(rows.read_shard, written.row)
        if won is None and written.row and written.row.get("claim") == nonce:
            self._open_claims[row.key] = Claim(row, nonce, dead_owner)
            return True
        self._open_claims.pop(row.key, None)
        if won is None or self._lease.dead:
            return True
        is_mine = won.owner == self._member.session
        if is_mine and won.claim == nonce:
            self._start_shard(won)
        elif is_mine or won.epoch == row.epoch:
            # A seek came after our claim, or a pause before it. A delayed request of
            # the same claim may still win when the pause ends.
            self.shards.stale.add(won)
        return True

    def _start_shard(self, row: ShardRow) -> None:
        config = self._context.config
        app = self._context.app
        owned = OwnedShard(app, row, self._lease, config.max_uncommitted_records)
        self.shards.by_key[row.key] = owned
        self.shards.stale.forget(row.key)
        stream = self._streams[row.key.stream_arn]
        reader = ShardReader(self._context, stream, owned, self._buffer)
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
        try:
            await reader.run()
        except CorruptRowError as error:
            self._rejected[owned.key] = owned.row.position, error
            self._begin_hand_over(owned)

    async def _wait_for_end(self, owned: OwnedShard) -> None:
        if await self._shard_ends.wait_and_close(owned) or owned.seeked:
            self.poll_now()
