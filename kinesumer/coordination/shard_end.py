"""The end of a closed shard: its children get rows, and are opened when all ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.coordination.store_queries import read_shards
from kinesumer.core import lineage
from kinesumer.model.streams import ShardKey
from kinesumer.runtime.failure_log import logger
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.consuming.streams import OpenStream
    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import Shard
    from kinesumer.ports import Write
    from kinesumer.runtime.context import ClientContext


class ShardEndHandler:
    """Ends the shards of one session; ``give_up`` writes as their owner."""

    def __init__(
        self,
        context: ClientContext,
        streams: Mapping[str, OpenStream],
        sync_progress: Callable[[], None],
        give_up: Callable[[OwnedShard, Write], Awaitable[bool]],
    ) -> None:
        self._context = context
        self._streams = streams
        self._sync_progress = sync_progress
        self._give_up = give_up

    async def wait_and_close(self, owned: OwnedShard) -> bool:
        """Wait for a closed shard's last record to be done, then open its children.

        Tell whether the end is stored: it isn't if the shard is given up before.
        """
        assert owned.task is not None
        await asyncio.wait([owned.task])
        self._sync_progress()
        if await owned.finished() and owned.children is not None:
            return await self._end(owned, await self._children(owned))
        return False

    async def _children(self, owned: OwnedShard) -> list[ShardRow]:
        """Return its children's rows: the group knows those that Kinesis forgot."""
        arn, shard_id = owned.key
        found = [lineage.as_shard(child) for child in owned.children or ()]
        found = found or [s for s in await self._list(arn) if shard_id in s.parents]
        if found:
            return [lineage.child_row(arn, shard) for shard in found]
        stored = await read_shards(self._context, arn)
        return [row for row in stored.rows if shard_id in row.parents]

    async def _list(self, arn: str) -> Sequence[Shard]:
        source, label = self._streams[arn].source, self._streams[arn].label
        return await self._context.until_available(source.list_shards, label)

    async def _end(self, owned: OwnedShard, children: list[ShardRow]) -> bool:
        """Write children first and the end after: a crash between them loses nothing.

        On a merge both owners write their end before they read the sibling, so at least
        one of them sees both.
        """
        app = self._context.app
        opening = []
        for child in children:
            made = await self._context.write(writes.create_shard(app, child))
            # Its epoch, read before its parents are, is what Ready names.
            opening.append(self._context.parse_row(rows.read_shard, made.row))
        owned.revoke()
        write = writes.mark_ended(app, owned.row, owned.position)
        if not await self._give_up(owned, write):
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
            place = rows.shard_key(self._context.app, key, first)
            row = await self._context.read(place)
            known = self._context.parse_row(rows.read_shard, row)
            if row is None:
                ids = {s.shard_id for s in await self._list(child.key.stream_arn)}
                # A listing without the child was cut off: it may lack the parent too.
                if parent in ids or child.key.shard_id not in ids:
                    return False
            elif known is None or not known.ended:
                return False
        return True
