"""One session's shards: claims, hand-overs, ends; each round reads, decides, writes."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.consuming.checkpointer import is_stored
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.shard_reader import ShardReader
from kinesumer.coordination.membership import DeadSessions
from kinesumer.coordination.paced_store import PARALLEL_WRITES
from kinesumer.coordination.pauses import PauseCache
from kinesumer.coordination.shard_end import ShardEndHandler
from kinesumer.coordination.shard_sync import check_identity
from kinesumer.coordination.stale_leases import StaleLeases
from kinesumer.coordination.store_queries import read_range
from kinesumer.core import claims as ownership
from kinesumer.core.liveness import interval_seconds
from kinesumer.errors import (
    CorruptRowError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import HAND_OVER_DURATION, LOST_LEASES, ROUND_DURATION
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kinesumer.consuming.prefetch import PrefetchBuffer
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.core.liveness import Lease
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Fence
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import Range, ShardKey
    from kinesumer.ports import Write
    from kinesumer.runtime.context import ClientContext

POLL_SECONDS = 0.25
"""How often a shard is looked for that should be ours and isn't."""
SLOW_POLL_SECONDS = 1.0
POLLS_BEFORE_SLOW = 40
FULL_POLL_SECONDS = 60.0
"""How often one's rows are read though nothing seems to be missing."""
CLAIMING_SECONDS = 1.0
"""A round doesn't claim for longer: then it looks at its rows again."""


class Claim(NamedTuple):
    """A claim to send, and to repeat as it is until it is answered."""

    row: ShardRow
    nonce: str
    dead_owner: str


class LeaseCoordinator:
    """What one session owns. Ends with the session, whose death loses all of it."""

    def __init__(
        self,
        context: ClientContext,
        lease: Lease,
        member: MemberRow,
        streams: Mapping[str, OpenStream],
        buffer: PrefetchBuffer,
        dead: set[str],
        sync_progress: Callable[[], None],
    ) -> None:
        self.held: dict[ShardKey, OwnedShard] = {}
        self.lost: set[ShardKey] = set()
        """Shards whose done records couldn't be stored, until somebody asks."""
        self.pending: list[ShardRow] = []
        self._context = context
        self._lease = lease
        self._member = member
        self._streams = streams
        self._buffer = buffer
        self._dead_sessions = DeadSessions(context, member.session, dead)
        self._sync_progress = sync_progress
        self._shard_ends = ShardEndHandler(
            context, streams, sync_progress, self._write_as_owner
        )
        self._requested_arns = member.streams
        self._range: Range = ()
        self._wake = asyncio.Event()
        self._moving: dict[ShardKey, float] = {}
        self._releasing: set[ShardKey] = set()
        self._seeked_epochs: dict[ShardKey, int] = {}
        """The last epoch of a shard that a seek took away."""
        self._stale_leases = StaleLeases(context, member.session)
        self._pause_cache = PauseCache(context)
        self._applied_notice = -1
        """The last notice that was acted upon."""
        self._is_over = False
        self._open_claims: dict[ShardKey, Claim] = {}
        self._confirmed_streams: set[str] = set()
        """ARNs of streams that are those that the group knows."""
        self._rejected_positions: dict[
            ShardKey, tuple[Position | None, CorruptRowError]
        ] = {}
        self._next_read = 0.0
        self._polls = 0
        self._tasks: asyncio.TaskGroup

    # --- what others call -----------------------------------------------------------

    def update_member(self, member: MemberRow) -> None:
        """Take in one's own row: a new range is acted on at once."""
        before = self._member
        self._member = member
        if member.range is not None:
            self._range = self._requested_parts(member.range)
        if member.plan != before.plan or member.notice > before.notice:
            self.poll_now()

    def restrict(self, asked: frozenset[str]) -> None:
        """Give up streams that aren't asked for any more, without a plan."""
        self._requested_arns = asked
        self._range = self._requested_parts(self._range)
        for key, owned in self.held.items():
            if key.stream_arn not in asked:
                self._begin_hand_over(owned)
        self._wake.set()

    def poll_now(self) -> None:
        """Read the rows in one's range soon."""
        self._next_read, self._polls = 0.0, 0
        self._wake.set()

    @property
    def range(self) -> Range:
        """The range that the plan gives this session."""
        return self._range

    def was_seeked_away(self, fence: Fence) -> bool:
        """Tell whether what was done in an epoch doesn't count, which is no loss."""
        return fence.epoch <= self._seeked_epochs.get(fence.shard, -1)

    async def run(self) -> None:
        """Go round until cancelled or until the lease is dead."""
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
        """Act on a row that refused a commit: it was sought, or it is another's."""
        if now is not None and ownership.was_seeked(owned.row, now):
            self._release_seeked(owned)
        else:
            self.drop(owned)

    def drop(self, owned: OwnedShard) -> None:
        """Give up a shard that another session owns by now."""
        self._sync_progress()
        owned.lose()
        self._context.telemetry.count(LOST_LEASES, owned.key.stream_arn)
        self._buffer.drop(owned)
        if owned.position is not None:
            self.lost.add(owned.key)
        if self.held.get(owned.key) is owned:
            del self.held[owned.key]

    def drop_all(self) -> None:
        """Give up everything: the session is dead."""
        for owned in list(self.held.values()):
            self.drop(owned)

    async def release(self, owned: OwnedShard, drain_seconds: float) -> None:
        """Stop a shard, wait for what is in user code, store and give it up."""
        self._sync_progress()
        owned.revoke()
        self._buffer.drop(owned)
        if not await owned.drained(drain_seconds) and drain_seconds:
            logger.warning(
                "%s %s: user code didn't finish within %g s; the next owner repeats it",
                owned.source.stream,
                owned.source.shard_id,
                drain_seconds,
                extra=owned.log_fields,
            )
        self._sync_progress()
        app, position = self._context.app, owned.position
        await self._write_as_owner(owned, writes.release(app, owned.row, position))

    # --- one round ------------------------------------------------------------------

    async def run_once(self) -> None:
        """Release what lies outside the range, then claim what lies inside."""
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
        """A plan may still name streams that aren't asked for any more."""
        return tuple(part for part in range_ if part.stream_arn in self._requested_arns)

    def _release_outside(self) -> None:
        heartbeat = self._context.config.heartbeat_interval_seconds
        delay = 1.1 * interval_seconds(heartbeat, self._member.clients)
        self._moving, due = ownership.to_release(
            {key: owned.row.first_hash for key, owned in self.held.items()},
            self._range,
            self._moving,
            self._context.clock.now(),
            delay,
        )
        for key in due:
            self._begin_hand_over(self.held[key])

    def _begin_hand_over(self, owned: OwnedShard) -> None:
        if owned.key not in self._releasing and not self._is_over:
            self._releasing.add(owned.key)
            self._tasks.create_task(self._hand_over(owned))

    async def _hand_over(self, owned: OwnedShard) -> None:
        started = self._context.clock.now()
        with self._context.telemetry.measure(HAND_OVER_DURATION, owned.key.stream_arn):
            await self.release(owned, self._context.config.drain_timeout_seconds)
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
        found = await self._read_rows()
        await self._confirm_streams()
        decision = self._decide_claims(found)
        if await self._dead_sessions.verify(decision.verify):
            decision = self._decide_claims(found)
        await self._stale_leases.release(self._range, decision.stale, self._busy_keys())
        self.pending = decision.pending
        if decision.pending:
            self._polls += 1
            slow = self._polls > POLLS_BEFORE_SLOW
            pause = SLOW_POLL_SECONDS if slow else POLL_SECONDS
            self._next_read = self._context.clock.now() + pause
        elif ownership.starts_inside_shard(self._range, found):
            self._next_read = self._context.clock.now() + SLOW_POLL_SECONDS
        left = await self._claim_each(
            Claim(row, self._context.new_id(), row.owner) for row in decision.claim
        )
        if left:
            self._next_read = self._context.clock.now()

    async def _claim_each(self, claims: Iterable[Claim]) -> bool:
        """Claim shards for a while, some at a time; tell whether some are left.

        Rounds release shards, too: a long row of claims doesn't put that off.
        """
        clock, waiting = self._context.clock, deque(claims)
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
        """Compare the streams of one's range with those that the group knows, once.

        Raises StreamRecreatedError: nothing of a stream made anew may be claimed.
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
        """Read the rows in one's range, and heed what operators changed in them."""
        notice = self._member.notice
        noticed = notice > self._applied_notice
        await self._pause_cache.refresh(noticed=noticed)
        inside = await read_range(self._context, self._range, consistent=noticed)
        self._applied_notice = notice
        for row in inside:
            if (owned := self.held.get(row.key)) is not None:
                self._apply_operator_change(owned, row)
        return [row for row in inside if not self._was_rejected(row)]

    def _apply_operator_change(self, owned: OwnedShard, now: ShardRow) -> None:
        """Give up a held shard that was sought or paused since it was claimed."""
        if ownership.was_seeked(owned.row, now):
            self._release_seeked(owned)
        elif now.epoch == owned.row.epoch and self._pause_cache.pauses.cover(now):
            self._begin_hand_over(owned)

    def _release_seeked(self, owned: OwnedShard) -> None:
        """Give up a shard that is ours, to claim it again at its new position."""
        self._note_seek(owned)
        self._begin_hand_over(owned)

    def _note_seek(self, owned: OwnedShard) -> None:
        owned.seek_away()
        self._seeked_epochs[owned.key] = owned.row.epoch

    def _decide_claims(self, found: list[ShardRow]) -> ownership.ClaimDecision:
        return ownership.decide_claims(
            found,
            self._busy_keys(),
            self._dead_sessions.dead,
            self._member.session,
            self._pause_cache.pauses,
        )

    def _busy_keys(self) -> set[ShardKey]:
        return self.held.keys() | self._open_claims.keys()

    def _was_rejected(self, row: ShardRow) -> bool:
        """Tell whether Kinesis has refused the position that stands in a row."""
        position, error = self._rejected_positions.get(row.key, (None, None))
        if error is None or position != row.position:
            return False
        self._context.failure_log.record_corrupt_row(error)
        return True

    async def _claim(self, row: ShardRow, nonce: str, dead_owner: str) -> bool:
        """Claim once; False: the store doesn't answer. What a lost answer leaves open
        is claimed again until answered.

        The repeated claim names the same epoch, so that a late first one can't win.
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
            # A seek came after a claim of ours, or a pause before it: a late try of it
            # may still win when that ends.
            self._stale_leases.add(won)
        return True

    def _start_shard(self, row: ShardRow) -> None:
        config = self._context.config
        app = self._context.app
        owned = OwnedShard(app, row, self._lease, config.max_uncommitted_records)
        self.held[row.key] = owned
        self._stale_leases.forget(row.key)
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
        """Read a shard; give it up if its row says a place that it doesn't have."""
        try:
            await reader.run()
        except CorruptRowError as error:
            self._rejected_positions[owned.key] = owned.row.position, error
            self._begin_hand_over(owned)

    async def _wait_for_end(self, owned: OwnedShard) -> None:
        if await self._shard_ends.wait_and_close(owned) or owned.seeked:
            self.poll_now()

    async def _write_as_owner(self, owned: OwnedShard, write: Write) -> bool:
        """Give a shard up by a write; tell whether our positions are stored."""
        position = owned.position
        written = await self._context.write(write)
        if self.held.get(owned.key) is owned:
            del self.held[owned.key]
        now = self._context.parse_row(rows.read_shard, written.row)
        if now is not None and ownership.was_seeked(owned.row, now):
            self._note_seek(owned)
            self._stale_leases.add(now)
            return False
        if written.applied or (
            now is not None and ownership.was_applied(now, write, position)
        ):
            if position is not None:
                owned.stored(position)
            if owned.position is not None:  # done while the write was under way
                self.lost.add(owned.key)
            return True
        owned.lose()
        # A release and an end may be under way together: what either stored is stored.
        if position is not None and not is_stored(owned, now, position):
            self.lost.add(owned.key)
        return False
