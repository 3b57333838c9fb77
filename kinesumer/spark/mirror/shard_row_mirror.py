"""Writes a query's positions in one stream to its shard rows."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kinesumer.consuming.owned_shard import TIP_SHARE
from kinesumer.coordination.shard_sync import sync_shards, write_all
from kinesumer.coordination.store_queries import read_shards
from kinesumer.core import claims, lineage
from kinesumer.core.liveness import proves_death
from kinesumer.model.positions import Tip
from kinesumer.model.rows import StreamRow
from kinesumer.model.streams import ShardKey, Start
from kinesumer.runtime.failure_log import logger
from kinesumer.spark.offsets.model import BEGINNING, After, End
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.positions import Position
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.model.streams import Shard
    from kinesumer.ports import Write
    from kinesumer.runtime.context import ClientContext
    from kinesumer.spark.offsets.model import ShardPosition

A = TypeVar("A")
T = TypeVar("T")
Shape = tuple[str, frozenset[str], frozenset[str]]
"""The session, the shards that an offset names, and those of them that have ended."""


class ShardRowMirror:
    """The shard rows of one stream, all owned by a query's session."""

    def __init__(self, context: ClientContext, stream: OpenStream) -> None:
        self._context = context
        self._stream = stream
        self._held: dict[ShardKey, ShardRow] = {}
        """Rows as claimed, with the position that was last stored."""
        self._session = ""
        self._synced: Shape | None = None
        self._dead: set[str] = set()

    async def sync(
        self, member: MemberRow, places: Mapping[str, ShardPosition]
    ) -> bool:
        """Update the rows by an offset; False: some must wait, try again."""
        shape, is_first = _shape(member, places), not self._session
        if member.session != self._session:
            self._held.clear()
            self._session = member.session
        if shape != self._synced:
            self._synced = None
            if await self._sync_rows(member, places):
                self._synced = shape
            if is_first:
                self._warn_if_behind(places)
        await self._commit(places)
        return self._synced is not None

    async def finish(
        self, member: MemberRow, places: Mapping[str, ShardPosition]
    ) -> None:
        """Release all shards, with the last positions in the same writes."""
        if _shape(member, places) != self._synced:
            await self.sync(member, places)
        app, held = self._context.app, self._held
        self._held, self._synced = {}, None
        todo = [
            writes.release(app, row, _progress(row, places)) for row in held.values()
        ]
        await self._each(self._context.write, todo)

    def _warn_if_behind(self, places: Mapping[str, ShardPosition]) -> None:
        """Warn if other members advanced beyond this query's checkpoint."""
        behind = [
            row.key.shard_id
            for row in self._held.values()
            if row.position is not None
            and _is_before(places.get(row.key.shard_id), row.position)
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

    async def keep(self) -> None:
        """Prune rows of shards that Kinesis has dropped, as a leader does."""
        await sync_shards(self._context, self._stream)

    # --- rows and owners ----------------------------------------------

    async def _sync_rows(
        self, member: MemberRow, places: Mapping[str, ShardPosition]
    ) -> bool:
        """Create, end, open and claim rows until all agree with the offset."""
        listed = await self._list()
        if not lineage.is_complete(listed):
            return False
        await self._create_initial_rows(listed, places)
        while True:
            found, unreadable = await read_shards(
                self._context, self._stream.arn, consistent=True
            )
            repairs = lineage.repairs(self._stream.arn, found, listed, unreadable)
            await self._repair(repairs)
            claimed = await self._claim_free(member, found)
            done = _done(found, listed, places)
            ended = await self._end(done)
            if not (repairs.create or repairs.ready or claimed or ended):
                waits = places.keys() & {s.shard_id for s in lineage.leaves(listed)}
                in_step = all(
                    row.ended or not row.ready or row.key in self._held for row in found
                )
                return in_step and not (
                    unreadable or any(isinstance(places[s], End) for s in waits)
                )

    async def _list(self) -> Sequence[Shard]:
        stream = self._stream
        return await self._context.until_available(
            stream.source.list_shards, stream.label
        )

    async def _repair(self, repairs: lineage.Repairs) -> None:
        app = self._context.app
        await write_all(
            self._context, [writes.create_shard(app, row) for row in repairs.create]
        )
        await write_all(
            self._context, [writes.ready(app, row) for row in repairs.ready]
        )

    async def _create_initial_rows(
        self, listed: Sequence[Shard], places: Mapping[str, ShardPosition]
    ) -> None:
        """Create the rows of a new group, from the offset.

        The stream's row comes last: after a crash before it, nothing can be claimed.
        """
        context, stream = self._context, self._stream
        row = await context.read(rows.stream_key(context.app, stream.arn))
        if row is not None:
            if not rows.read_stream(row).baseline:
                await sync_shards(
                    context, stream
                )  # a client died while it created the rows
            return
        first = first_rows(stream.arn, listed, places)
        await write_all(context, [writes.create_shard(context.app, r) for r in first])
        mine = StreamRow(
            stream.arn, stream.info.created_at, _start(places), baseline=True
        )
        await context.write(writes.create_stream(context.app, mine))

    # --- claims and ends --------------------------------------------------------------

    async def _claim_free(self, member: MemberRow, found: list[ShardRow]) -> bool:
        """Claim rows without a living owner; tell whether any was claimed."""
        for row in found:
            if row.owner == member.session and not row.ended:
                # The read was consistent: the row isn't older than our claim.
                self._held.setdefault(row.key, row)
        session, pauses = member.session, claims.Pauses()
        decided = claims.decide_claims(found, self._held, self._dead, session, pauses)
        await self._verify(decided.verify)
        decided = claims.decide_claims(found, self._held, self._dead, session, pauses)
        return any(await self._each(partial(self._claim, member), decided.claim))

    async def _verify(self, owners: set[tuple[str, str]]) -> None:
        app = self._context.app
        for client_id, session in owners:
            row = await self._context.read(rows.member_key(app, client_id))
            if proves_death(session, rows.read_liveness(row) if row else None):
                self._dead.add(session)

    async def _claim(self, member: MemberRow, row: ShardRow) -> bool:
        nonce = self._context.new_id()
        write = writes.claim(self._context.app, row, member, nonce, row.owner)
        written = await self._context.write(write)
        now = self._context.parse_row(rows.read_shard, written.row)
        if now is None or now.claim != nonce:
            return False
        self._held[row.key] = now
        return True

    async def _end(self, done: set[str]) -> bool:
        """Mark rows of fully read shards as ended; their children have rows already."""
        todo = [row for row in self._held.values() if row.key.shard_id in done]
        for row in todo:
            del self._held[row.key]
        ends = [writes.mark_ended(self._context.app, row, None) for row in todo]
        return bool(await self._each(self._context.write, ends))

    # --- positions --------------------------------------------------------------------

    async def _commit(self, places: Mapping[str, ShardPosition]) -> None:
        app, retention = self._context.app, self._stream.retention_seconds
        todo = []
        for row in self._held.values():
            position = _progress(row, places)
            tip = due_tip(row, places.get(row.key.shard_id), retention)
            if position is not None:
                todo.append((row, writes.commit(app, row, position, tip)))
            elif tip is not None:
                todo.append((row, writes.note_tip(app, row, tip)))
        await self._each(self._commit_one, todo)

    async def _commit_one(self, changed: tuple[ShardRow, Write]) -> None:
        row, write = changed
        written = await self._context.write(write)
        now = self._context.parse_row(rows.read_shard, written.row)
        if now is not None and (now.owner, now.epoch) == (row.owner, row.epoch):
            self._held[row.key] = row._replace(position=now.position, tip=now.tip)
        else:
            del self._held[row.key]
            self._synced = None

    async def _each(
        self, write: Callable[[A], Coroutine[Any, Any, T]], todo: Iterable[A]
    ) -> list[T]:
        """Write all items concurrently. The store limits the number of requests."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(write(item)) for item in todo]
        return [task.result() for task in tasks]


def _shape(member: MemberRow, places: Mapping[str, ShardPosition]) -> Shape:
    ends = frozenset(s for s, place in places.items() if isinstance(place, End))
    return member.session, frozenset(places), ends


def first_rows(
    arn: str, listed: Sequence[Shard], places: Mapping[str, ShardPosition]
) -> list[ShardRow]:
    """Return the rows of a group that begins with an offset."""
    known = {shard.shard_id for shard in listed}
    ended = {s for s, place in places.items() if isinstance(place, End)}
    parents = {shard.shard_id: shard.parents for shard in listed}
    ended |= lineage.ancestors(places, parents) - places.keys()
    found = []
    for shard in listed:
        place = places.get(shard.shard_id, BEGINNING)
        row = lineage.child_row(arn, shard)
        found.append(
            row._replace(
                start=place if isinstance(place, Start) else Start.TRIM_HORIZON,
                position=place.position if isinstance(place, After) else None,
                ended=shard.shard_id in ended,
                ready=not (set(shard.parents) & known) - ended,
            )
        )
    return found


def _start(places: Mapping[str, ShardPosition]) -> Start:
    """Return the common start of all shards."""
    starts = {place for place in places.values() if isinstance(place, Start)}
    return starts.pop() if len(starts) == 1 else Start.TRIM_HORIZON


def _done(
    found: Iterable[ShardRow],
    listed: Sequence[Shard],
    places: Mapping[str, ShardPosition],
) -> set[str]:
    """Return the shards that the query has fully read.

    These are shards that have ended in the offset, once their children are listed, and
    ancestors that the offset no longer names, since Kinesis has dropped them.
    """
    leaves = {shard.shard_id for shard in lineage.leaves(listed)}
    parents = {row.key.shard_id: row.parents for row in found}
    ended = {s for s, place in places.items() if isinstance(place, End)}
    return (ended - leaves) | (lineage.ancestors(places, parents) - places.keys())


def _is_before(place: ShardPosition | None, position: Position) -> bool:
    if isinstance(place, After):
        return place.position < position
    return place == BEGINNING


def _progress(row: ShardRow, places: Mapping[str, ShardPosition]) -> Position | None:
    """Return a shard's position if it is greater than the one stored."""
    place = places.get(row.key.shard_id)
    if not isinstance(place, After):
        return None
    stored = row.position
    return place.position if stored is None or place.position > stored else None


def due_tip(
    row: ShardRow, place: ShardPosition | None, retention_seconds: float
) -> Tip | None:
    """Return a shard's tip by an offset, if the tip in its row is old."""
    if not isinstance(place, After):
        return None
    if row.position is not None and row.position > place.position:
        return None
    if place.seen - row.read_until < retention_seconds * TIP_SHARE:
        return None
    return Tip(place.seen, place.position)
