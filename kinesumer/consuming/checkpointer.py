"""Commit positions: at each interval, earlier where much is done, and on request."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Protocol

from kinesumer.core.write_rate import commit_interval_seconds
from kinesumer.errors import StoreUnavailableError
from kinesumer.telemetry.names import COMMIT_DURATION, COMMIT_SPAN, SHARDS
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.runtime.context import ClientContext

PARALLEL_COMMITS = 16
MOST_TIPS = 16
"""Tips of quiet shards that are stored in one interval."""


class CommitRequester(Protocol):
    """Takes requests to commit before the interval is over."""

    def commit_soon(self) -> None:
        """Commit at once what is done, where that is much."""


class ShardOwner(Protocol):
    """The client whose shards are committed."""

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that the client owns now."""

    def sync_progress(self) -> None:
        """Update the shards' progress by what user code has done."""

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        """Handle a rejected commit: ``row`` is the shard's row as it is now."""

    def commit_share(self, stream_arn: str) -> float:
        """Return this client's share of the stream's commits, from 0 to 1."""


class Checkpointer:
    """Commits the positions of a client's shards."""

    def __init__(self, context: ClientContext, owner: ShardOwner) -> None:
        self._context = context
        self._owner = owner
        self._counts: Counter[str] = Counter()
        """How many shards of each stream were committed last."""
        self._requested = asyncio.Event()
        self._limit = asyncio.Semaphore(PARALLEL_COMMITS)

    def commit_soon(self) -> None:
        """Commit at once what is done, where that is much."""
        self._requested.set()

    async def run(self) -> None:
        """Commit every interval until cancelled."""
        clock, interval = (
            self._context.clock,
            self._context.config.commit_interval_seconds,
        )
        next_all = clock.now() + interval
        while True:
            try:
                async with asyncio.timeout(max(0.0, next_all - clock.now())):
                    await self._requested.wait()
            except TimeoutError:
                pass
            self._requested.clear()
            due = list(self._owner.owned_shards())
            # An early commit of some shards doesn't delay the others' turn.
            is_early = clock.now() < next_all
            if is_early:
                due = [h for h in due if h.wants_commit]
            began = clock.now()
            stored = await self._commit_each(due)
            if not is_early:
                # Backed off and spread, so that heartbeats and claims get through.
                spread = 1.0 if stored else 0.5 + self._context.random.random()
                shares = {arn: self._owner.commit_share(arn) for arn in self._counts}
                least = commit_interval_seconds(self._counts, shares)
                next_all = max(clock.now() + interval * spread, began + least)

    async def commit_all(self) -> list[ShardKey]:
        """Store what is done, trying until it is stored; return the shards lost."""
        self._owner.sync_progress()
        owned_shards = list(self._owner.owned_shards())
        attributes = {SHARDS: len(owned_shards)}
        with self._context.telemetry.trace(COMMIT_SPAN, attributes=attributes):
            await asyncio.gather(*(self._commit(h, patient=True) for h in owned_shards))
        return [owned.key for owned in owned_shards if owned.lost]

    async def _commit_each(self, owned_shards: Iterable[OwnedShard]) -> bool:
        self._owner.sync_progress()
        able = [owned for owned in owned_shards if owned.can_store]
        due = [owned for owned in able if owned.position is not None]
        quiet = [h for h in able if h.position is None and h.due_tip is not None]
        answers = await asyncio.gather(*map(self._note_tip, quiet[:MOST_TIPS]))
        self._counts = Counter(owned.key.stream_arn for owned in due)
        if due:
            attributes = {SHARDS: len(due)}
            with self._context.telemetry.trace(COMMIT_SPAN, attributes=attributes):
                answers += await asyncio.gather(*map(self._commit, due))
        return all(answers)

    async def _commit(self, owned: OwnedShard, *, patient: bool = False) -> bool:
        """Store one shard's position if it moved; False if the store didn't answer."""
        position = owned.position
        if position is None or not owned.can_store:
            return True
        context = self._context
        tip = owned.due_tip
        write = writes.commit(context.app, owned.row, position, tip)
        async with self._limit:
            try:
                with context.telemetry.measure(COMMIT_DURATION, owned.key.stream_arn):
                    written = await (context.write if patient else context.store.write)(
                        write
                    )
            except StoreUnavailableError as error:
                context.failure_log.record_failure("state store", error)
                return False
        context.failure_log.record_success("state store")
        now = context.parse_row(rows.read_shard, written.row)
        if written.applied or is_stored(owned, now, position):
            owned.stored(position)
            if tip is not None:
                owned.tip_stored(tip)
        else:
            self._owner.commit_rejected(owned, now)
        return True

    async def _note_tip(self, owned: OwnedShard) -> bool:
        """Store a quiet shard's tip; False if the store didn't answer."""
        tip, context = owned.due_tip, self._context
        if tip is None or not owned.can_store:
            return True
        async with self._limit:
            try:
                written = await context.store.write(
                    writes.note_tip(context.app, owned.row, tip)
                )
            except StoreUnavailableError as error:
                context.failure_log.record_failure("state store", error)
                return False
        context.failure_log.record_success("state store")
        if written.applied:
            owned.tip_stored(tip)
        else:
            self._owner.commit_rejected(
                owned, context.parse_row(rows.read_shard, written.row)
            )
        return True


def is_stored(owned: OwnedShard, row: ShardRow | None, position: Position) -> bool:
    """Return whether the position is stored although the row rejected the write.

    It is if a try that seemed lost was applied, or if the shard was released meanwhile:
    what was written in our epoch is ours.
    """
    if owned.progress.has_committed(position):
        return True
    if row is None or row.position is None or row.epoch != owned.row.epoch:
        return False
    return row.position >= position
