"""Writes a query's positions in one stream to its shard rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.membership import DeadSessions
from kinesumer.coordination.shard_sync import sync_shards, write_all
from kinesumer.coordination.store_queries import read_shards, read_stream_row
from kinesumer.core import claims, lineage
from kinesumer.core.progress import is_tip_due
from kinesumer.model.positions import (
    BEGINNING,
    After,
    End,
    Position,
    Positions,
    ShardPosition,
    Tip,
)
from kinesumer.model.rows import MemberRow, ShardRow, StreamRow
from kinesumer.model.streams import Shard, ShardKey, Start
from kinesumer.ports import Write
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.tasks import gather_or_cancel
from kinesumer.wire import rows, shard_writes, writes

# If these are unchanged, rows need only new positions: the query's session, the shards
# in its offset, and those of them that the query has read to their ends.
Shape = tuple[str, frozenset[str], frozenset[str]]


class ShardRowMirror:
    """Claims the shard rows of one stream, and writes a query's positions to them."""

    def __init__(self, context: ClientContext, stream: OpenStream) -> None:
        self._context = context
        self._stream = stream
        # The rows that the session owns, with the positions that it last wrote.
        self._held: dict[ShardKey, ShardRow] = {}
        self._session = ""
        self._synced: Shape | None = None
        self._dead_sessions = DeadSessions(context, "", set())

    async def sync(self, member: MemberRow, positions: Positions) -> bool:
        """Write positions to the rows. Return False if a call must follow soon."""
        shape, is_first = _shape(member, positions), not self._session
        if member.session != self._session:
            self._held.clear()
            self._session = member.session
        if shape != self._synced:
            self._synced = None
            if await self._sync_rows(member, positions):
                self._synced = shape
            if is_first:
                self._warn_if_behind(positions)
        await self._commit(positions)
        return self._synced is not None

    async def finish(self, member: MemberRow, positions: Positions) -> None:
        """Store the last position of each shard and release the shard, in one write."""
        if _shape(member, positions) != self._synced:
            await self.sync(member, positions)
        app, held = self._context.app, self._held.values()
        self._held, self._synced = {}, None
        releases = [
            shard_writes.release(app, row, _progress(row, positions)) for row in held
        ]
        await write_all(self._context, releases)

    def _warn_if_behind(self, positions: Positions) -> None:
        """Warn if the group has stored positions after those of this query."""
        behind = [
            row.key.shard_id
            for row in self._held.values()
            if row.position is not None
            and _is_before(positions.get(row.key.shard_id), row.position)
        ]
        if behind:
            logger.warning(
                "%s: the group is ahead of this query in %d shards (%s, …): the query "
                "repeats these records; to begin at the group's positions, use a new "
                "checkpointLocation and startingPosition=checkpoint",
                self._stream.label,
                len(behind),
                min(behind),
                extra={"stream": self._stream.name, "shards": len(behind)},
            )

    # --- rows and owners ----------------------------------------------

    async def _sync_rows(self, member: MemberRow, positions: Positions) -> bool:
        """Create and claim rows, and mark shards as ended, as the offset requires.

        Return False if the call must be repeated soon.
        """
        context, stream, app = self._context, self._stream, self._context.app
        listed = await stream.list_shards(context)
        if not lineage.is_complete(listed):
            return False
        await self._create_initial_rows(listed, positions)
        while True:
            stored, unreadable = await read_shards(context, stream.arn, consistent=True)
            # No second read of the parents, as in shard_sync: seeks, which reopen
            # parents, are refused while a query is alive.
            repairs = lineage.repairs(stream.arn, stored, listed, unreadable)
            creates = [shard_writes.create_shard(app, row) for row in repairs.create]
            await write_all(context, creates)
            readies = [shard_writes.ready(app, row) for row in repairs.ready]
            await write_all(context, readies)
            claimed = await self._claim_free(member, stored)
            ended = await self._end(_done(stored, listed, positions))
            # After a change, look again: when a shard ends, its children become ready,
            # and must be claimed.
            if repairs.create or repairs.ready or claimed or ended:
                continue
            leaves = {s.shard_id for s in lineage.leaves(listed)}
            waiting = [row for row in stored if row.ready and not row.ended]
            return (
                not unreadable
                and leaves.isdisjoint(_ended(positions))
                and all(row.key in self._held for row in waiting)
            )

    async def _create_initial_rows(
        self, listed: Sequence[Shard], positions: Positions
    ) -> None:
        """Create the rows of a new group, from the offset.

        The stream's row is created last, because no client claims shards of a stream
        without a row. So if this process dies meanwhile, no incomplete group is used.
        Clients (see shard_sync) create it first, to agree on one start. A query needs
        no agreement, since its offset has all positions.
        """
        context, stream = self._context, self._stream
        row = await read_stream_row(context, stream.arn)
        if row is not None:
            if not row.baseline:  # the process that created it died before it finished
                await sync_shards(context, stream)
            return
        app, created_at = context.app, stream.info.created_at
        first = first_rows(stream.arn, listed, positions)
        await write_all(context, [shard_writes.create_shard(app, r) for r in first])
        mine = StreamRow(stream.arn, created_at, _start(positions), baseline=True)
        await context.write(writes.create_stream(app, mine))

    # --- claims and ends --------------------------------------------------------------

    async def _claim_free(self, member: MemberRow, stored: list[ShardRow]) -> bool:
        """Claim the rows that have no living owner. Return whether any was claimed."""
        for row in stored:
            if row.owner == member.session and not row.ended:
                # If the answer to a claim was lost, the session owns a row without
                # holding it here.
                self._held.setdefault(row.key, row)
        while True:
            decision = claims.decide_claims(
                stored,
                self._held,
                self._dead_sessions.dead,
                member.session,
                claims.Pauses(),
            )
            if not await self._dead_sessions.verify(decision.verify):
                break
        won = await gather_or_cancel(self._claim(member, r) for r in decision.claim)
        return any(won)

    async def _claim(self, member: MemberRow, row: ShardRow) -> bool:
        # If the answer was lost, the retry's condition fails. The nonce in the row then
        # shows that the first try succeeded. Unlike a LeaseCoordinator, a query has no
        # list of open claims, because _claim_free() finds what the session owns. It
        # counts no deaths, and no operator pauses its shards.
        nonce = self._context.new_id()
        write = shard_writes.claim(self._context.app, row, member, nonce, row.owner)
        written = await self._context.write(write)
        now = self._context.parse_row(rows.read_shard, written.row)
        if now is None or now.claim != nonce:
            return False
        self._held[row.key] = now
        return True

    async def _end(self, done: set[str]) -> bool:
        """Mark rows of fully read shards as ended. Return whether there were any."""
        todo = [row for row in self._held.values() if row.key.shard_id in done]
        for row in todo:
            del self._held[row.key]
        ends = [shard_writes.mark_ended(self._context.app, r, None) for r in todo]
        await write_all(self._context, ends)
        return bool(todo)

    # --- positions --------------------------------------------------------------------

    async def _commit(self, positions: Positions) -> None:
        app, retention = self._context.app, self._stream.retention_seconds
        pending: list[tuple[ShardRow, Write]] = []
        for row in self._held.values():
            position = _progress(row, positions)
            tip = due_tip(row, positions.get(row.key.shard_id), retention)
            if position is not None:
                pending.append((row, shard_writes.commit(app, row, position, tip)))
            elif tip is not None:
                pending.append((row, shard_writes.note_tip(app, row, tip)))
        await gather_or_cancel(self._commit_one(*change) for change in pending)

    async def _commit_one(self, row: ShardRow, write: Write) -> None:
        written = await self._context.write(write)
        now = self._context.parse_row(rows.read_shard, written.row)
        if now is not None and (now.owner, now.epoch) == (row.owner, row.epoch):
            self._held[row.key] = row._replace(position=now.position, tip=now.tip)
        else:  # another session has claimed the row
            del self._held[row.key]
            self._synced = None


def _shape(member: MemberRow, positions: Positions) -> Shape:
    return member.session, frozenset(positions), frozenset(_ended(positions))


def _ended(positions: Positions) -> set[str]:
    return {s for s, position in positions.items() if isinstance(position, End)}


def first_rows(
    arn: str, listed: Sequence[Shard], positions: Positions
) -> list[ShardRow]:
    """Return the rows that a new group needs if its query begins at an offset.

    Unlike in ``lineage.first_rows()``, each shard has a start of its own.
    """
    parents = {shard.shard_id: shard.parents for shard in listed}
    skipped = lineage.ancestors(positions, parents) - positions.keys()
    created = []
    for shard in listed:
        position = positions.get(shard.shard_id, BEGINNING)
        row = lineage.new_row(arn, shard)
        created.append(
            row._replace(
                start=position if isinstance(position, Start) else Start.TRIM_HORIZON,
                position=position.position if isinstance(position, After) else None,
            )
        )
    return lineage.with_ends(created, _ended(positions) | skipped)


def _start(positions: Positions) -> Start:
    """Return the start that all shards have in common, else TRIM_HORIZON."""
    starts = {place for place in positions.values() if isinstance(place, Start)}
    return starts.pop() if len(starts) == 1 else Start.TRIM_HORIZON


def _done(
    stored: Iterable[ShardRow], listed: Sequence[Shard], positions: Positions
) -> set[str]:
    """Return the shards that the query has fully read.

    A shard with the position End counts only if Kinesis already lists its children. An
    ancestor that the offset no longer contains was read earlier, and counts, too.
    """
    leaves = {shard.shard_id for shard in lineage.leaves(listed)}
    parents = {row.key.shard_id: row.parents for row in stored}
    skipped = lineage.ancestors(positions, parents) - positions.keys()
    return (_ended(positions) - leaves) | skipped


def _is_before(position: ShardPosition | None, stored: Position) -> bool:
    if isinstance(position, After):
        return position.position < stored
    return position == BEGINNING


def _progress(row: ShardRow, positions: Positions) -> Position | None:
    """Return the query's position in a shard if it is after the stored position."""
    position = positions.get(row.key.shard_id)
    if not isinstance(position, After):
        return None
    stored = row.position
    return position.position if stored is None or position.position > stored else None


def due_tip(
    row: ShardRow, position: ShardPosition | None, retention_seconds: float
) -> Tip | None:
    """Return a shard's tip from an offset if the row's own tip must be renewed."""
    if not isinstance(position, After):
        return None
    if row.position is not None and row.position > position.position:
        return None
    if not is_tip_due(position.seen, row.read_until, retention_seconds):
        return None
    return Tip(position.seen, position.position)
