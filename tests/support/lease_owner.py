"""Run one session's lease coordinator over the stream "orders", without a group."""

from __future__ import annotations

from typing import Any, cast

from kinesumer.consuming.assignment_callbacks import AssignmentCallbacks
from kinesumer.consuming.delivery_protocol import DeliveryProtocol
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import PrefetchBuffer
from kinesumer.coordination.lease_coordinator import LeaseCoordinator
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core.liveness import Lease
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import HASH_KEYS, Interval, ShardKey
from kinesumer.wire import writes
from tests.support.faulty import FaultySource, FaultyStore
from tests.support.row_edits import shard_keys, spoil
from tests.support.world import APP, ARN, World

P, LOW, HIGH = (f"shardId-{n:012}" for n in range(3))
WHOLE = (Interval(ARN, 0, HASH_KEYS - 1),)
LOWER = (Interval(ARN, 0, HASH_KEYS // 2 - 1),)
UPPER = (Interval(ARN, HASH_KEYS // 2, HASH_KEYS - 1),)


class Owner:
    """A session's lease coordinator and store, and user code that finishes records."""

    def __init__(
        self, world: World, client_id: str = "c1", session: str = "", **config: Any
    ) -> None:
        self.world = world
        self.session = session or f"session of {client_id}"
        self.store = FaultyStore(world.table)
        self.source = FaultySource(world.kinesis.source("orders"))
        self.stream = world.open(self.source)
        self.context = world.context(client_id, store=self.store, **config)
        self.lease = Lease(self.session, 1e9)
        self.member = MemberRow(client_id, self.session, streams=frozenset({ARN}))
        self.buffer = PrefetchBuffer(1 << 30)
        self.dead: set[str] = set()
        self.callbacks: AssignmentCallbacks | None = None
        self.texts: list[str] = []
        self._taken: list[tuple[OwnedShard, int]] = []
        self.stocks = 0
        self._finishes = True
        self.sets_aside = False  # whether there is a target of dead letters
        self.coordinator = LeaseCoordinator(
            self.context,
            self.lease,
            self.member,
            {ARN: self.stream},
            self.buffer,
            self.dead,
            cast("DeliveryProtocol", self),  # it has the part that is used here
        )

    async def begin(self) -> Owner:
        """Register, create the first rows, and start the coordinator."""
        register = writes.register(APP, self.member, None, "now")
        await self.world.table.write(register)
        await sync_shards(self.context, self.stream)
        self.store.sent.clear()
        self.running = self.world.loop.create_task(self.coordinator.run())
        self.consuming = self.world.loop.create_task(self._consume())
        return self

    def plan(self, range_: tuple[Interval, ...], version: int = 1) -> None:
        """Give the session a range of hash keys, as a heartbeat's response does."""
        self.member = self.member._replace(
            range=range_, leader_epoch=1, plan_version=version
        )
        self.coordinator.update_member(self.member)

    async def owns(self, *shard_ids: str, seconds: float = 60.0) -> None:
        """Wait until the session owns exactly these shards."""
        await self.world.until(lambda: self.held() == sorted(shard_ids), seconds)

    def held(self) -> list[str]:
        return sorted(key.shard_id for key in self.coordinator.shards.by_key)

    def owned(self, shard_id: str = P) -> OwnedShard:
        return self.coordinator.shards.by_key[ShardKey(ARN, shard_id)]

    def row(self, shard_id: str = P) -> ShardRow:
        return self.world.shard_rows()[shard_id]

    async def die(self) -> None:
        """Mark the session dead, as another client would."""
        await self.world.table.write(writes.leave(APP, self.member, "now"))

    async def _consume(self) -> None:
        while True:
            batch = await self.buffer.get()
            if batch is None or batch.owned.revoked:
                continue
            progress = batch.owned.progress
            first = progress.deliver(batch.records, batch.end)
            self._taken.append((batch.owned, first + len(batch)))
            batch.owned.set_delivered(first + len(batch))
            self.texts += [record.data.decode() for record in batch.records]
            self.sync_progress()

    @property
    def finishes(self) -> bool:
        """True if user code finishes its records at once."""
        return self._finishes

    @finishes.setter
    def finishes(self, finishes: bool) -> None:
        self._finishes = finishes
        self.sync_progress()

    def has_records(self, owned: OwnedShard, *, waiting: bool) -> bool:
        return False

    def has_dead_letters(self, stream_arn: str) -> bool:
        return self.sets_aside

    def sync_progress(self) -> None:
        self.stocks += 1
        if self.finishes:
            for owned, count in self._taken:
                owned.progress.done_through(count)
            self._taken.clear()


async def own(world: World, *texts: str, **config: Any) -> Owner:
    """Return an owner of the stream's only shard that has read these records."""
    owner = await Owner(world, **config).begin()
    owner.plan(WHOLE)
    await owner.owns(P)
    world.put(*texts)
    await world.until(lambda: len(owner.texts) >= len(texts))
    return owner


async def change(world: World, shard_id: str, **values: Any) -> None:
    """Change attributes of a row of the stream "orders"."""
    await spoil(world, shard_keys(world)[shard_id], **values)
