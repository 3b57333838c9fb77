"""Test clients and queries that take turns at random, while shards split and merge."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from kinesumer.model.streams import HASH_KEYS, Start
from tests.support.mirrored_query import Log, Query
from tests.support.world import World, in_virtual_time

# Records of one lane share a hash key, so they stay in order during reshards.
LANES = 8
TURNS = 8


class Side:
    """Reads with a client or a query in each turn, and keeps each turn's records."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.read: list[list[str]] = []
        # The last query's log, if the next query continues it.
        self.log: Log | None = None

    async def turn(self) -> None:
        await (self._query() if self.random.random() < 0.6 else self._client())

    async def _client(self) -> None:
        self.log = None
        name = f"c{self.random.randrange(3)}"
        client = self.world.client(
            name, start=Start.LATEST, commit_interval_seconds=1.0
        )
        self.read.append([])
        await self._happenings(self.random.uniform(10.0, 40.0))
        if self.random.random() < 0.5:
            client.kill()
        else:
            await client.stop()
        self.read[-1] = client.texts

    async def _query(self) -> None:
        log = self.log or Log()
        self.log = log
        before = len(log.texts)
        query = await Query(self.world, log, commit_interval_seconds=1.0).start(
            checkpoint=True
        )
        for _ in range(self.random.randrange(1, 12)):
            await query.batch(self.random.choice([1, 3, 1000]))
            await self._happenings(self.random.uniform(0.0, 4.0))
        if self.random.random() < 0.5:
            query.kill()
        else:
            await query.stop()
        self.read.append(log.texts[before:])
        if self.random.random() < 0.5:
            self.log = None  # the query's checkpoint is deleted

    async def _happenings(self, seconds: float) -> None:
        end = self.world.clock.now() + seconds
        while self.world.clock.now() < end:
            self.put()
            if self.random.random() < 0.1:
                self.reshard()
            await asyncio.sleep(self.random.uniform(0.1, 2.0))

    def put(self) -> None:
        lane = self.random.randrange(LANES)
        number = self.world.kinesis.stream("orders").next_number
        self.world.put(f"{lane} {number}", hash_key=lane * (HASH_KEYS // LANES))

    def reshard(self) -> None:
        shards = self.world.kinesis.stream("orders").shards.values()
        leaves = sorted(
            (s.shard for s in shards if not s.closed), key=lambda s: s.first_hash
        )
        if self.random.random() < 0.5 and len(leaves) > 1:
            place = self.random.randrange(len(leaves) - 1)
            pair = (leaf.shard_id for leaf in leaves[place : place + 2])
            self.world.kinesis.merge("orders", *pair)
        else:
            leaf = self.random.choice(leaves)
            self.world.kinesis.split("orders", leaf.shard_id)


async def drained(world: World) -> list[str]:
    """Let a last client read all remaining records, and return them."""
    client = world.client("last", start=Start.LATEST)
    await asyncio.sleep(90.0)
    await client.stop()
    return client.texts


def assert_in_order(texts: list[str]) -> None:
    """Check that the records of each lane are in order, and that none is repeated."""
    lanes: dict[str, list[int]] = {}
    for text in texts:
        lane, number = text.split()
        lanes.setdefault(lane, []).append(int(number))
    for numbers in lanes.values():
        assert numbers == sorted({*numbers})


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_and_parents_come_first(seed: int) -> None:
    @in_virtual_time
    async def run(world: World) -> None:
        side = Side(world, Random(seed))
        side.put()
        query = await Query(world).start()  # begins the group at the oldest record
        await query.batch()
        await asyncio.sleep(2.0)
        await query.stop()
        side.read.append(query.log.texts)
        for _ in range(TURNS):
            await side.turn()
        side.read.append(await drained(world))
        for texts in side.read:
            assert_in_order(texts)
        first_reads = dict.fromkeys(text for texts in side.read for text in texts)
        assert_in_order([*first_reads])
        shards = world.kinesis.stream("orders").shards.values()
        assert {*first_reads} == {r.data.decode() for s in shards for r in s.log}

    run()
