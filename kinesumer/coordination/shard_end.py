"""The end of a closed shard: its children get rows and become ready to claim."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.coordination.store_queries import read_shards
from kinesumer.core import lineage
from kinesumer.model.streams import ShardKey
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.coordination.held_shards import HeldShards
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard
    from kinesumer.runtime.context import ClientContext


class ShardEndHandler:
    """Ends the shards of one session that have been read to their end."""

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
        if await owned.finished() and owned.children is not None:
            return await self._end(owned, await self._children(owned))
        return False

    async def _children(self, owned: OwnedShard) -> list[ShardRow]:
        """Return the children's rows, from the table if Kinesis has forgotten them."""
        arn, shard_id = owned.key
        children = [lineage.as_shard(child) for child in owned.children or ()]
        if not children:
            children = [s for s in await self._list(arn) if shard_id in s.parents]
        if children:
            return [lineage.child_row(arn, shard) for shard in children]
        stored = await read_shards(self._context, arn)
        return [row for row in stored.rows if shard_id in row.parents]

    async def _list(self, arn: str) -> Sequence[Shard]:
        source, label = self._streams[arn].source, self._streams[arn].label
        return await self._context.until_available(source.list_shards, label)

    async def _end(self, owned: OwnedShard, children: list[ShardRow]) -> bool:
        """Create the children, mark the end, then make the children ready.

        In this order a crash in between loses nothing. At a merge both owners write
        their end before they read the sibling. So at least one of them sees both.
        """
        app = self._context.app
        opening = []
        for child in children:
            created = await self._context.write(writes.create_shard(app, child))
            # Ready names the epoch read here, before the parents are read.
            opening.append(self._context.parse_row(rows.read_shard, created.row))
        owned.revoke()
        write = writes.mark_ended(app, owned.row, owned.position)
        if not await self._shards.write_as_owner(owned, write):
            return False
        for row in opening:
            if row and not row.ready and await self._parents_ended(owned, row):
                await self._context.write(writes.ready(app, row))
        logger.info(
            "%s %s ended",
            owned.source.stream,
            owned.source.shard_id,
            extra=owned.log_fields,
        )
        return True

    async def _parents_ended(self, owned: OwnedShard, child: ShardRow) -> bool:
        for parent in child.parents - {owned.key.shard_id}:
            first = child.first_hash
            if first == owned.row.first_hash:
                first = owned.row.last_hash + 1
            key = ShardKey(child.key.stream_arn, parent)
            row = await self._context.read(
                rows.shard_key(self._context.app, key, first)
            )
            known = self._context.parse_row(rows.read_shard, row)
            if row is None:
                ids = {s.shard_id for s in await self._list(child.key.stream_arn)}
                # A listing without the child is incomplete: it may lack the parent.
                if parent in ids or child.key.shard_id not in ids:
                    return False
            elif known is None or not known.ended:
                return False
        return True
