"""Help to test operators' commands on rows that look as if clients wrote them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.model.positions import Position
from kinesumer.model.rows import Key, MemberRow, ShardRow
from kinesumer.model.streams import Start
from kinesumer.ops.group import seek
from kinesumer.ports import Write
from kinesumer.wire import writes
from tests.support.faulty import FaultyStore
from tests.support.row_edits import shard_keys, spoil
from tests.support.world import APP, ARN, World

P, LOW, HIGH, MERGED = (f"shardId-{n:012}" for n in range(4))


class Operator:
    """An operator who changes the group of the stream "orders"."""

    def __init__(self, world: World, store: Any = None) -> None:
        self.world = world
        self.context = world.context("operator", store=store)
        self.stream: OpenStream = world.open(world.kinesis.source("orders"))

    async def create_group(self) -> Self:
        """Create the group, and rows for the current shards of the stream."""
        await self.world.table.write(writes.create_group(APP, "g"))
        await sync_shards(self.context, self.stream)
        return self

    async def join(self, client_id: str, **fields: Any) -> MemberRow:
        member = MemberRow(
            client_id, f"s-{client_id}", streams=frozenset({ARN}), **fields
        )
        await self.world.table.write(writes.register(APP, member, None, "now"))
        return member

    async def seek(
        self, to: Start | Position, shard_id: str | None = None
    ) -> list[ShardRow]:
        planned = await seek.plan_seek(self.context, self.stream, to, shard_id)
        return await seek.seek(self.context, planned)

    async def change(self, shard_id: str, **values: Any) -> None:
        """Change a shard's row, as its owner would."""
        await spoil(self.world, shard_keys(self.world)[shard_id], **values)

    @property
    def rows(self) -> dict[str, ShardRow]:
        return self.world.shard_rows()

    def row(self, key: Key) -> dict[str, Any]:
        [stored] = [r for r in self.world.table.rows(key.pk) if r["sk"] == key.sk]
        return stored

    @property
    def notices(self) -> dict[str, int]:
        return {name: row.notice for name, row in self.world.members().items()}


async def resharded(world: World) -> Operator:
    """Split and merge shards. All but the last child have ended; c1 owns that one."""
    operator = Operator(world)
    world.kinesis.split("orders", P)
    world.kinesis.merge("orders", LOW, HIGH)
    await operator.create_group()
    for shard_id in (P, LOW, HIGH):
        await operator.change(shard_id, ready=True, ended=True, sequence_number="77")
    owned = {"ready": True, "owner": "s-c1", "owner_id": "c1", "epoch": 4}
    await operator.change(MERGED, **owned, sequence_number="99", claim="nonce")
    return operator


class BeforeSeek(FaultyStore):
    """A store that calls a function just before it first applies a seek of a shard."""

    def __init__(
        self, world: World, shard_id: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(world.table)
        self._shard_id = shard_id
        self._work: Callable[[], Awaitable[None]] | None = work

    async def write(self, write: Write) -> Any:
        is_it = write.key.sk.endswith(self._shard_id) and "epoch" in write.set
        if is_it and self._work is not None:
            work, self._work = self._work, None
            await work()
        return await super().write(write)
