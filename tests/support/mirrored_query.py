"""Simulate a Spark query: its offset log, its rows and its mirror."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kinesumer.model.positions import (
    BEGINNING,
    END,
    After,
    At,
    End,
    Offset,
    ShardPosition,
    StreamOffset,
)
from kinesumer.model.records import Fence, Source
from kinesumer.model.rows import QUERY_ID
from kinesumer.model.streams import Shard, ShardKey
from kinesumer.spark.mirror import Mirror
from tests.support.aggregates import open_records
from tests.support.faulty import FaultySource, FaultyStore
from tests.support.world import World

LARGE = 10_000
P, LOW, HIGH = (f"shardId-{n:012}" for n in range(3))


@dataclass
class Log:
    """The data that Spark keeps of a query when its driver dies."""

    offset: Offset = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)


class Query:
    """One run of a query's driver, on its own machine."""

    def __init__(
        self, world: World, log: Log | None = None, *streams: str, **config: Any
    ) -> None:
        self.world = world
        self.log = Log() if log is None else log
        self.machine = world.loop.machine("driver")
        self.store = FaultyStore(world.table)
        context = world.context(QUERY_ID, store=self.store, **config)
        self.context = replace(context, clock=self.machine)
        self._names = streams or ("orders",)
        self.mirror: Mirror

    async def start(self, *, checkpoint: bool = False) -> Query:
        """Register, and begin after the last batch in the log.

        If the log is empty, begin at the group's positions with ``checkpoint``, or at
        the oldest records.
        """
        await self._run(self._start(checkpoint))
        return self

    async def _start(self, checkpoint: bool) -> None:
        opened = [self.world.open(self.world.kinesis.source(n)) for n in self._names]
        self.streams = {stream.arn: stream for stream in opened}
        self.mirror = Mirror(self.context, "table-1", self.streams)
        await self.mirror.start()
        if checkpoint and not self.log.offset:
            self.log.offset = await self.mirror.stored()
        if not self.log.offset:
            self.log.offset = {s.arn: self._oldest(s.name) for s in opened}

    def _oldest(self, name: str) -> StreamOffset:
        source = self.world.kinesis.source(name)
        listed = {s.shard_id: s.parents for s in source.list_shards_now()}
        roots = [i for i, parents in listed.items() if not listed.keys() & {*parents}]
        created = source.describe_now().created_at
        return StreamOffset(created, dict.fromkeys(roots, BEGINNING))

    def read_through(self, source: FaultySource) -> None:
        for stream in self.streams.values():
            stream.source = source

    async def batch(self, limit: int = LARGE) -> None:
        """Read some records of each shard as one batch, and notify the mirror."""
        for arn, before in list(self.log.offset.items()):
            places = dict(before.shards)
            listed = self.world.kinesis.source(arn).list_shards_now()
            for shard in listed:
                if _may_read(shard, before.shards, {s.shard_id for s in listed}):
                    place = before.shards.get(shard.shard_id, BEGINNING)
                    places[shard.shard_id] = self._read(arn, shard, place, limit)
            self.log.offset[arn] = StreamOffset(before.created_at, places)
        await self.tell()

    async def tell(self) -> None:
        await self._run(self._tell())

    async def _tell(self) -> None:
        self.mirror.committed(dict(self.log.offset))

    def _read(
        self, arn: str, shard: Shard, place: ShardPosition, limit: int
    ) -> ShardPosition:
        assert not isinstance(place, At | End)
        source = self.world.kinesis.source(arn)
        after = place.position if isinstance(place, After) else place
        self.world.kinesis.reads_per_second = 0
        iterator = source.get_iterator_now(shard.shard_id, after)
        page = source.get_records_now(iterator, limit)
        fence = Fence(ShardKey(arn, shard.shard_id), 0)
        opened = open_records(page.records, Source(fence, 0, 0)).records
        if isinstance(place, After):
            opened = [r for r in opened if r.position > place.position]
        self.log.texts += [r.data.decode() for r in opened]
        if page.next_iterator is None:
            return END
        if not page.records:
            return place
        last = page.records[-1].position._replace(sub_sequence_number=None)
        return After(last, self.world.clock.wall())

    async def stop(self) -> None:
        await self._run(self.mirror.stop())

    def kill(self) -> None:
        self.machine.kill()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        await self.world.loop.spawn(self.machine, work)


def _may_read(
    shard: Shard, places: Mapping[str, ShardPosition], listed: set[str]
) -> bool:
    """Return whether all parents of a shard ended in earlier batches."""
    if isinstance(places.get(shard.shard_id), End):
        return False
    return all(
        isinstance(places.get(parent), End)
        for parent in shard.parents
        if parent in listed
    )


async def reading(world: World, *texts: str, **config: Any) -> Query:
    world.put(*texts)
    query = await Query(world, **config).start()
    await query.batch()
    await world.until(lambda: stored(world))
    return query


def stored(world: World, shard_id: str = P) -> str:
    row = world.shard_rows().get(shard_id)
    return row.position.sequence_number if row and row.position else ""


def owner(world: World, shard_id: str = P) -> str:
    row = world.shard_rows().get(shard_id)
    return row.owner_id if row else ""


def newest(world: World) -> str:
    return str(world.kinesis.stream("orders").next_number - 1)
