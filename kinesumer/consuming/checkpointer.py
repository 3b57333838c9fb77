"""Commit positions regularly, on request, and early if many records are done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.core import claims
from kinesumer.core.congestion import commit_interval_seconds
from kinesumer.errors import StoreUnavailableError
from kinesumer.model.positions import Position, Tip
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.ports import Write, WriteResult
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.tasks import wait_and_clear
from kinesumer.wire import rows, shard_writes

# Half of the writes that PacedStore sends in parallel. The other half is left for
# claims and releases.
PARALLEL_COMMITS = 16

Send = Callable[[Write], Awaitable[WriteResult]]


class ShardOwner(Protocol):
    """The client that owns the shards whose positions are committed."""

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that the client owns now."""

    def sync_progress(self) -> None:
        """Update the shards' progress with the records that user code has processed."""

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        """Handle a rejected commit. ``row`` is the shard's current row."""

    def commit_share(self, stream_arn: str) -> float:
        """Return this client's share of the stream's commits, from 0 to 1."""


class Checkpointer:
    """Commits the positions of the shards that a client owns."""

    def __init__(self, context: ClientContext, owner: ShardOwner) -> None:
        self._context = context
        self._owner = owner
        # The number of shards of each stream in the last commit.
        self._counts: Counter[str] = Counter()
        self._requested = asyncio.Event()
        self._limit = asyncio.Semaphore(PARALLEL_COMMITS)

    def commit_soon(self) -> None:
        """Request an early commit of the shards that have many finished records."""
        self._requested.set()

    async def run(self) -> None:
        """Commit at each interval, and early on request, until cancelled."""
        clock = self._context.clock
        interval = self._context.config.commit_interval_seconds
        next_all = clock.now() + interval
        while True:
            await wait_and_clear(self._requested, next_all - clock.now())
            due = list(self._owner.owned_shards())
            # An early commit of some shards doesn't delay the next commit of all.
            is_early = clock.now() < next_all
            if is_early:
                due = [h for h in due if h.wants_commit]
            began = clock.now()
            stored = await self._commit_each(due)
            if not is_early:
                # After a failure, clients retry at different times, so that heartbeats
                # and claims get through.
                spread = 1.0 if stored else 0.5 + self._context.random.random()
                shares = {arn: self._owner.commit_share(arn) for arn in self._counts}
                # All commits of a stream go to one partition of the table, which takes
                # 1,000 writes a second.
                least = commit_interval_seconds(self._counts, shares)
                next_all = max(clock.now() + interval * spread, began + least)

    async def commit_all(self) -> list[ShardKey]:
        """Store the positions of done records, with retries. Return the lost shards."""
        self._owner.sync_progress()
        owned_shards = list(self._owner.owned_shards())
        with self._context.telemetry.trace_commit(len(owned_shards)):
            await asyncio.gather(
                *(self._commit(h, until_stored=True) for h in owned_shards)
            )
        return [owned.key for owned in owned_shards if owned.lost]

    async def commit_one(self, owned: OwnedShard) -> None:
        """Store the position of one shard's done records, in one attempt.

        If another session owns the shard, it is lost. Raises StoreUnavailableError.
        """
        self._owner.sync_progress()
        await self._store(owned, self._context.store.write)

    async def _commit_each(self, owned_shards: Iterable[OwnedShard]) -> bool:
        self._owner.sync_progress()
        able = [owned for owned in owned_shards if owned.can_store]
        due = [owned for owned in able if owned.position is not None]
        quiet = [h for h in able if h.position is None and h.due_tip is not None]
        ends = [h for h in quiet if h.is_end_due]  # other clients wait for these
        # A tip can wait for hours, so a client with many shards without new records
        # spreads the writes over many intervals.
        few = [h for h in quiet if not h.is_end_due][:PARALLEL_COMMITS]
        answers = await asyncio.gather(*map(self._note_tip, ends + few))
        read = [h for h in able if h.position is None and h.may_forget_deaths]
        answers += await asyncio.gather(*map(self._forget_deaths, read))
        self._counts = Counter(owned.key.stream_arn for owned in due)
        if due:
            with self._context.telemetry.trace_commit(len(due)):
                answers += await asyncio.gather(*map(self._commit, due))
        return all(answers)

    async def _commit(self, owned: OwnedShard, *, until_stored: bool = False) -> bool:
        """Store a shard's position if it moved. Return False if the store failed."""
        context = self._context
        try:
            await self._store(
                owned, context.write if until_stored else context.store.write
            )
        except StoreUnavailableError:
            return False
        return True

    async def _store(self, owned: OwnedShard, send: Send) -> None:
        """Store a shard's position if it moved. Raises StoreUnavailableError."""
        position, tip, context = owned.position, owned.due_tip, self._context
        if position is None or not owned.can_store:
            return
        write = shard_writes.forgetting(
            shard_writes.commit(context.app, owned.row, position, tip),
            owned.forgotten_attributes(context.clock.now()),
        )

        async def store() -> WriteResult:
            with context.telemetry.measure("commit", owned.key.stream_arn):
                return await send(write)

        await self._apply(store, owned, position, tip)

    async def _note_tip(self, owned: OwnedShard) -> bool:
        """Store only a shard's tip. Return False if the store failed."""
        tip, context = owned.due_tip, self._context
        if tip is None or not owned.can_store:
            return True
        write = shard_writes.note_tip(context.app, owned.row, tip)
        return await self._apply_once(write, owned, tip)

    async def _forget_deaths(self, owned: OwnedShard) -> bool:
        """End the isolation of an idle shard. Return False if the store failed."""
        key = shard_writes.shard_row_key(self._context.app, owned.row)
        return await self._apply_once(
            shard_writes.forget_deaths(key, owned.row), owned, None
        )

    async def _apply_once(
        self, write: Write, owned: OwnedShard, tip: Tip | None
    ) -> bool:
        """Send a write without a position. Return False if the store failed."""
        store = self._context.store
        try:
            await self._apply(lambda: store.write(write), owned, None, tip)
        except StoreUnavailableError:
            return False
        return True

    async def _apply(
        self,
        store: Callable[[], Awaitable[WriteResult]],
        owned: OwnedShard,
        position: Position | None,
        tip: Tip | None,
    ) -> None:
        """Send a write of a position or tip. Raises StoreUnavailableError."""
        log = self._context.failure_log
        async with self._limit:
            try:
                written = await store()
            except StoreUnavailableError as error:
                log.record_failure("state store", error)
                raise
        log.record_success("state store")
        now = self._context.parse_row(rows.read_shard, written.row)
        if written.applied or (
            position is not None
            and claims.is_stored(owned.progress, owned.row, now, position)
        ):
            if position is not None:
                owned.stored(position)
            if tip is not None:
                owned.tip_stored(tip)
            if now is not None:
                owned.deaths_stored(now.deaths)
        else:
            self._owner.commit_rejected(owned, now)
