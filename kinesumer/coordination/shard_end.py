"""End closed shards: create their children, and make these ready to claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.held_shards import HeldShards
from kinesumer.coordination.shard_sync import create_rows
from kinesumer.coordination.store_queries import (
    POLL_SECONDS,
    read_shards,
    read_stream_row,
)
from kinesumer.core import lineage
from kinesumer.core.lineage import is_read_until
from kinesumer.model.rows import Key, ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows, shard_writes


class ShardEndHandler:
    """Ends a session's shards that have been read to their end."""

    def __init__(
        self,
        context: ClientContext,
        streams: Mapping[str, OpenStream],
        shards: HeldShards,
    ) -> None:
        self._context = context
        self._streams = streams
        self._shards = shards

    async def wait_and_close(self, owned: OwnedShard) -> bool:
        """Wait until a closed shard's last record is processed, then end the shard.

        Return whether the end is stored. It isn't if the shard is given up before.
        """
        assert owned.task is not None
        await asyncio.wait([owned.task])
        self._shards.sync_progress()
        # Call on_revoked before the end is stored: children may start right after it.
        calls = None if owned.children is None else owned.calls
        if calls is not None and not await calls.end():
            return False
        if await owned.finished() and owned.children is not None:
            return await self._end(owned, await self._children(owned))
        return False

    async def _children(self, owned: OwnedShard) -> list[ShardRow]:
        """Return the children's rows; read the stored ones if Kinesis lists none."""
        arn, shard_id = owned.key
        children = list(owned.children or ())
        if not children:
            listed = await self._streams[arn].list_shards(self._context)
            children = [shard for shard in listed if shard_id in shard.parents]
        if children:
            return [lineage.new_row(arn, shard) for shard in children]
        stored = await read_shards(self._context, arn)
        return [row for row in stored.rows if shard_id in row.parents]

    async def _end(self, owned: OwnedShard, children: list[ShardRow]) -> bool:
        """Create the children, mark the end, then make the children ready."""
        # Create the children before the end is stored. If the client crashes between
        # the two, the next owner reaches the shard's end again, and creates them.
        if not await self._surely_owns(owned):
            return False
        app = self._context.app
        opening = []
        for child in children:
            if len(child.parents) > 1 and not await self._has_parents(owned, child):
                continue
            created = await self._context.write(shard_writes.create_shard(app, child))
            # Note each child's epoch before the parents are read. If a seek raises the
            # epoch meanwhile, the store refuses to mark the child as ready.
            opening.append(self._context.parse_row(rows.read_shard, created.row))
        owned.revoke()
        write = shard_writes.mark_ended(app, owned.row, owned.position)
        if owned.suspects is not None:
            write = shard_writes.forgetting(write, shard_writes.DEATHS)
        if not await self._shards.write_as_owner(owned, write):
            return False
        # In a merge, the owner of each parent writes that parent's end before it reads
        # the other parent. So at least one of the owners sees both ends.
        for row in opening:
            if row and not row.ready and await self._parents_ended(owned, row):
                await self._context.write(shard_writes.ready(app, row))
        logger.info(
            "%s %s ended",
            owned.source.stream,
            owned.source.shard_id,
            extra=owned.log_fields,
        )
        return True

    async def _surely_owns(self, owned: OwnedShard) -> bool:
        """Wait until no other client can own a shard; return False if one does.

        A later owner may have created and ended the children. In a KCL fleet, their
        leases may be deleted soon, and must not be created again.
        """
        while not owned.lease.permits(self._context.clock.now()):
            if not owned.can_store:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _has_parents(self, owned: OwnedShard, child: ShardRow) -> bool:
        """Create the rows of a child's other parents, and of their ancestors.

        Return False if that must be left to shard sync, because no listing shows them.
        In a KCL fleet, a parent without a lease counts as read to its end. So the child
        can't come first.
        """
        context, arn = self._context, child.key.stream_arn
        others = child.parents - {owned.key.shard_id}
        keys = [_parent_key(context.app, owned, child, other) for other in others]
        if all([await context.read(key) is not None for key in keys]):
            return True
        shards = await self._streams[arn].list_shards(context)
        if not lineage.is_current(shards, [child]):
            return False
        read_at = context.clock.now()
        found, unreadable = await read_shards(context, arn, consistent=True)
        missing = lineage.repairs(arn, found, shards, unreadable).create
        await create_rows(context, missing, read_at)
        return True

    async def _parents_ended(self, owned: OwnedShard, child: ShardRow) -> bool:
        context, arn = self._context, child.key.stream_arn
        for parent in child.parents - {owned.key.shard_id}:
            row = await context.read(_parent_key(context.app, owned, child, parent))
            known = context.parse_row(rows.read_shard, row)
            if row is None:
                listed = await self._streams[arn].list_shards(context)
                ids = {shard.shard_id for shard in listed}
                # A listing without the child is incomplete, so the parent may exist.
                if parent in ids or child.key.shard_id not in ids:
                    return False
            elif known is None or not known.ended:
                return False
        return True


def _parent_key(app: str, owned: OwnedShard, child: ShardRow, parent: str) -> Key:
    """Return the key of the row of an owned shard's sibling in a merge.

    The hash keys of a merge's parents adjoin, and the lower parent starts where the
    child starts.
    """
    first = child.first_hash
    if first == owned.row.first_hash:
        first = owned.row.last_hash + 1
    return rows.shard_key(app, ShardKey(child.key.stream_arn, parent), first)


async def until_read(
    context: ClientContext,
    owned_shards: Callable[[], Iterable[OwnedShard]],
    streams: Callable[[], Iterable[OpenStream]],
) -> None:
    """Wait until the group has read each of the client's streams until its time."""
    # The rows of other clients' shards change when these clients commit.
    interval = context.config.commit_interval_seconds
    while True:
        # As long as the client's own shards are not read, this costs no request.
        if all(owned.reached for owned in owned_shards()):
            if await _are_read(context, streams()):
                return
        await asyncio.sleep(interval)


async def _are_read(context: ClientContext, streams: Iterable[OpenStream]) -> bool:
    """Return whether the rows of all shards say so."""
    for stream in streams:
        row = await read_stream_row(context, stream.arn)
        # Before the first complete listing, rows of shards may be missing.
        if row is None or not row.baseline:
            return False
        found = await read_shards(context, stream.arn, consistent=True)
        if found.unreadable or not is_read_until(found.rows, stream.until):
            return False
    return True
