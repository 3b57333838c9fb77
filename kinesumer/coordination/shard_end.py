"""End closed shards: create their children, and make these ready to claim."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.held_shards import HeldShards
from kinesumer.coordination.store_queries import read_shards, read_stream_row
from kinesumer.core import lineage
from kinesumer.core.lineage import is_read_until
from kinesumer.model.rows import ShardRow
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
        app = self._context.app
        opening = []
        for child in children:
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

    async def _parents_ended(self, owned: OwnedShard, child: ShardRow) -> bool:
        context, arn = self._context, child.key.stream_arn
        for parent in child.parents - {owned.key.shard_id}:
            # The hash keys of a merge's parents adjoin, and the lower parent starts
            # where the child starts.
            first = child.first_hash
            if first == owned.row.first_hash:
                first = owned.row.last_hash + 1
            key = rows.shard_key(context.app, ShardKey(arn, parent), first)
            row = await context.read(key)
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
