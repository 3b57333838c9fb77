"""The engine on ports in memory and in virtual time: a test of an hour takes none."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextlib import nullcontext
from functools import wraps
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.config import Config
from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch, memory_size
from kinesumer.consuming.records import Records
from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat_thread import HeartbeatTask
from kinesumer.core.liveness import Lease
from kinesumer.errors import (
    SourceUnavailableError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.records import Record
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start, Stream
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.simulation.event_loop import VirtualLoop
from kinesumer.testing.memory import MemoryKinesis, MemoryStore
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from contextlib import AbstractAsyncContextManager

    from kinesumer.consuming.streams import StreamLike
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Page
    from kinesumer.model.rows import Key, Row
    from kinesumer.model.streams import Shard, StreamInfo
    from kinesumer.ports import Reservation, Write, WriteResult
    from kinesumer.testing.memory import MemorySource

APP = "app"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """Run a test, which takes a World first, on a loop that waits for nothing."""

    @wraps(test)
    def run(**arguments: Any) -> None:
        loop = VirtualLoop(Random(0))
        loop.run(test(World(loop), **arguments))
        assert not loop.failures

    signature = inspect.signature(test)
    given = list(signature.parameters.values())[1:]
    run.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
    return run


class World:
    """One table, one Kinesis, one clock, and clients made for them.

    There is a stream "orders" of one shard.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.clock = loop.services
        self.table = MemoryStore(self.clock)
        self.kinesis = MemoryKinesis(self.clock)
        self.kinesis.create_stream("orders")
        self._ids = count()

    def new_id(self) -> str:
        """Return an id that nobody else has."""
        return f"id-{next(self._ids)}"

    def context(
        self, client_id: str = "c1", *, store: Any = None, **config: Any
    ) -> ClientContext:
        """Return a client's context; ``config`` are options of Config."""
        return ClientContext(
            app=APP,
            client_id=client_id,
            config=Config(**config),
            store=self.table if store is None else store,
            clock=self.clock,
            random=Random(1),
            new_id=self.new_id,
            failure_log=FailureLog(self.clock),
        )

    def open(self, source: Any, **stream: Any) -> OpenStream:
        """Return a stream as opened by a client, read through ``source``."""
        info = source.describe_now()
        start = stream.pop("start", Start.TRIM_HORIZON)
        return OpenStream(Stream(info.arn, **stream), source, info, start)

    def client(self, client_id: str, *streams: StreamLike, **options: Any) -> Client:
        """Start a client on a machine of its own; it consumes in the background."""
        return Client(self, client_id, streams or ("orders",), **options)

    def put(self, *texts: str, stream: str = "orders", hash_key: int = 0) -> None:
        """Append records to the shard of a hash key."""
        for text in texts:
            self.kinesis.put(stream, text.encode(), explicit_hash_key=hash_key)

    def shard_rows(self, stream: str = "orders") -> dict[str, ShardRow]:
        """Return the shard rows of a stream by shard id."""
        arn = self.kinesis.stream(stream).arn
        found = map(rows.read_shard, self.table.rows(rows.shard_partition(APP, arn)))
        return {row.key.shard_id: row for row in found}

    def members(self) -> dict[str, MemberRow]:
        """Return the member rows by client id."""
        found = map(rows.read_member, self.table.rows(f"member#{APP}"))
        return {row.client_id: row for row in found}

    async def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something holds; fail if it doesn't in time."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)


class Client:
    """A whole client: group, heart and user code that only collects records."""

    def __init__(
        self,
        world: World,
        client_id: str,
        streams: Sequence[StreamLike],
        *,
        start: Start = Start.TRIM_HORIZON,
        source: Callable[[str], Any] | None = None,
        store: Any = None,
        handle: Callable[[Record], Coroutine[Any, Any, None]] | None = None,
        **config: Any,
    ) -> None:
        self.world = world
        self.machine = world.loop.machine(client_id)
        self.context = world.context(client_id, store=store, **config)
        self.delivery = RecordDelivery(
            self.machine, acks_by_asking=self.context.config.commit == "auto"
        )
        self.group = GroupConsumer(
            self.context, self._open, HeartbeatTask(self.context), self.delivery
        )
        self.records = Records(self.delivery, self._begin)
        self.seen: list[Record] = []
        self._handle = handle
        self._source = source or world.kinesis.source
        self._streams, self._start = list(streams), start
        self._begun = False
        self.task = world.loop.spawn(self.machine, self._consume())

    @property
    def texts(self) -> list[str]:
        """What was delivered, in order."""
        return [record.data.decode() for record in self.seen]

    @property
    def held(self) -> list[str]:
        """The ids of the shards held."""
        return sorted(h.key.shard_id for h in self.group.owned_shards())

    @property
    def leads(self) -> bool:
        """Whether it believes to lead."""
        session = self.group.session
        return session is not None and session.leader.is_leading

    def kill(self) -> None:
        """SIGKILL."""
        self.machine.kill()

    async def stop(self, *, wait_for_user: bool = True) -> None:
        """Leave the ``async with`` block from beside the loop."""
        await self.run(self.group.stop(wait_for_user=wait_for_user))

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something of the client on its machine."""
        return self.world.loop.spawn(self.machine, work)

    async def _open(self, stream: Stream) -> Any:
        return self._source(stream.name)

    async def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            await self.group.start(self._streams, self._start)

    async def _consume(self) -> None:
        async for record in self.records:
            self.seen.append(record)
            if self._handle is not None:
                await self._handle(record)


class FaultyStore:
    """A way to the table that fails as told. Everything sent is kept."""

    def __init__(self, table: MemoryStore) -> None:
        self.table = table
        self.down = False
        """Nothing arrives."""
        self.latency = 0.001
        self.sent: list[Write] = []
        self.queried: list[str] = []
        """The partitions of queries."""
        self._spoiled: list[tuple[str, str]] = []

    def spoil(self, how: str, attribute: str) -> None:
        """Spoil the next write that sets (or removes) an attribute.

        ``lost``: it never arrives. ``unanswered``: it is applied, its answer is lost.
        ``throttled``: it is refused for now.
        """
        self._spoiled.append((how, attribute))

    def writes(self, attribute: str) -> list[Write]:
        """Return what was sent that sets an attribute."""
        return [write for write in self.sent if attribute in write.set]

    async def write(self, write: Write) -> WriteResult:
        """Apply one write, or not."""
        await self._travel()
        self.sent.append(write)
        how = self._fate(write)
        if how == "throttled":
            raise StoreThrottledError("throttled")
        if how == "lost":
            raise StoreUnavailableError("timed out")
        written = await self.table.write(write)
        if how == "unanswered":
            raise StoreUnavailableError("timed out")
        return written

    async def get(self, key: Key, *, consistent: bool = True) -> Row | None:
        """Return one row."""
        await self._travel()
        return await self.table.get(key, consistent=consistent)

    async def query(
        self, pk: str, *, first: str = "", last: str = "", consistent: bool = False
    ) -> list[Row]:
        """Return rows."""
        await self._travel()
        self.queried.append(pk)
        return await self.table.query(pk, first=first, last=last, consistent=consistent)

    async def query_not_updated_since(self, pk: str, moment: str) -> list[Key]:
        """Return keys."""
        await self._travel()
        return await self.table.query_not_updated_since(pk, moment)

    async def verify(self) -> str:
        """Return the table's id."""
        await self._travel()
        return await self.table.verify()

    async def _travel(self) -> None:
        await asyncio.sleep(self.latency)
        if self.down:
            raise StoreUnavailableError("timed out")

    def _fate(self, write: Write) -> str:
        for place, (how, attribute) in enumerate(self._spoiled):
            if attribute in write.set or attribute in write.remove:
                del self._spoiled[place]
                return how
        return ""


class FaultySource:
    """A way to one stream that fails as told. Iterators asked for are kept."""

    def __init__(self, source: MemorySource) -> None:
        self.source = source
        self.down = False
        self.errors: deque[Exception] = deque()
        """What the next reads raise, one each."""
        self.iterators: list[tuple[str, Position | Start]] = []
        self.reads: list[float] = []
        self.limits: list[int] = []
        self.listing: list[Shard] | None = None
        """What ListShards says in place of the truth."""

    def describe_now(self) -> StreamInfo:
        """Return the stream."""
        return self.source.describe_now()

    async def describe(self) -> StreamInfo:
        """Return the stream."""
        self._travel()
        return self.source.describe_now()

    async def list_shards(self) -> list[Shard]:
        """Return the shards, or what the test wants to be seen."""
        self._travel()
        return self.source.list_shards_now() if self.listing is None else self.listing

    def connection(self) -> AbstractAsyncContextManager[None]:
        """Return a connection at once: there is no limit."""
        return nullcontext()

    async def get_iterator(self, shard_id: str, after: Position | Start) -> str:
        """Return an iterator."""
        self._travel()
        self.iterators.append((shard_id, after))
        return self.source.get_iterator_now(shard_id, after)

    async def get_records(
        self, iterator: str, limit: int, reservation: Reservation | None = None
    ) -> Page:
        """Return a page."""
        self.reads.append(self.source.kinesis.clock.now())
        self.limits.append(limit)
        self._travel()
        if self.errors:
            raise self.errors.popleft()
        return await self.source.get_records(iterator, limit, reservation)

    def _travel(self) -> None:
        if self.down:
            raise SourceUnavailableError("timed out")


class DateAhead(FaultySource):
    """A way to a stream through a proxy that writes the Date by a clock ahead."""

    def __init__(self, source: MemorySource, ahead_seconds: float) -> None:
        super().__init__(source)
        self.ahead_seconds = ahead_seconds

    async def describe(self) -> StreamInfo:
        """Return the stream, with the proxy's time."""
        info = await super().describe()
        return info._replace(now=info.now + self.ahead_seconds)


def shard_row(shard_id: str = "shardId-000000000000", **changes: Any) -> ShardRow:
    """Return the row of a shard over the whole hash space, as just claimed."""
    row = ShardRow(ShardKey(ARN, shard_id), 0, HASH_KEYS - 1, Start.TRIM_HORIZON)
    return row._replace(epoch=1, owner="s1", owner_id="c1", ready=True, **changes)


def hold(
    row: ShardRow | None = None, max_uncommitted_records: int = 100_000
) -> OwnedShard:
    """Return a shard held with a lease that doesn't run out."""
    return OwnedShard(
        APP, row or shard_row(), Lease("s1", 1e9), max_uncommitted_records
    )


def batch_of(owned: OwnedShard, *numbers: int, size: int | None = None) -> FetchedBatch:
    """Return a batch of records with these sequence numbers."""
    source = owned.source
    records = [Record(str(n), b"data %d" % n, source=source) for n in numbers]
    owned.queued(len(records))
    size = memory_size(records) if size is None else size
    return FetchedBatch(records, 0, size, None, owned)
