"""Run a checkpointer without a client, with fake owners and commit requests."""

from __future__ import annotations

from typing import Any, Self

from kinesumer.consuming.checkpointer import Checkpointer
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import ShardKey
from kinesumer.wire import rows, shard_writes
from tests.support.faulty import FaultyStore
from tests.support.row_edits import spoil
from tests.support.world import APP, ARN, World, batch_of, hold, shard_row


class FakeOwner:
    """A ``ShardOwner`` whose shards the test changes."""

    def __init__(self, shards: list[OwnedShard], *, share: float = 1.0) -> None:
        self.shards = shards
        self.syncs = 0
        self.rejected: list[OwnedShard] = []
        self.row: ShardRow | None = None  # the row that rejected the last commit
        self._share = share

    def owned_shards(self) -> list[OwnedShard]:
        return self.shards

    def sync_progress(self) -> None:
        self.syncs += 1

    def commit_rejected(self, owned: OwnedShard, row: ShardRow | None) -> None:
        self.row = row
        owned.lose()
        self.rejected.append(owned)

    def commit_share(self, stream_arn: str) -> float:
        return self._share


class CheckpointDesk:
    """A checkpointer, and shards whose delivered records the test finishes."""

    def __init__(
        self,
        world: World,
        *,
        shards: int = 1,
        row: ShardRow | None = None,
        share: float = 1.0,
        **config: Any,
    ) -> None:
        self.world = world
        self.store = FaultyStore(world.table)
        limit = config.get("max_uncommitted_records", 100_000)
        self.owned_shards = [
            hold((row or shard_row())._replace(key=ShardKey(ARN, f"s{n:03}")), limit)
            for n in range(shards)
        ]
        if row is None:
            for owned in self.owned_shards:
                owned.progress.deliver(batch_of(owned, *range(1, 10)).records)
        self.owner = FakeOwner(self.owned_shards, share=share)
        self.lost = self.owner.rejected
        context = world.context(store=self.store, **config)
        self.checkpointer = Checkpointer(context, self.owner)

    async def begin(self) -> Self:
        for owned in self.owned_shards:
            create = shard_writes.create_shard(APP, owned.row)
            await self.world.table.write(create)
            await self.change(owned, owner="s1")
        self.running = self.world.loop.create_task(self.checkpointer.run())
        return self

    async def change(self, owned: OwnedShard, **values: Any) -> None:
        key = rows.shard_key(APP, owned.key, 0)
        await spoil(self.world, key, **values)

    def done(self, count: int) -> None:
        for owned in self.owned_shards:
            owned.progress.done_through(count)

    def row(self, number: int = 0) -> ShardRow:
        return self.world.shard_rows()[f"s{number:03}"]
