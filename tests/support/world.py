"""Run the engine in memory and in virtual time, so that long tests are fast.

If a conftest imports ``pytest_pycollect_makeitem`` and ``world``, async tests that use
``world`` run in virtual time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from itertools import count
from random import Random
from typing import Any, TypeVar

import pytest

from kinesumer import Kinesumer
from kinesumer.config import Config
from kinesumer.consuming.delivery import Records
from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.consuming.prefetch import FetchedBatch
from kinesumer.consuming.streams import OpenStream, StreamLike
from kinesumer.coordination.connections import Ports
from kinesumer.coordination.group import GroupConsumer
from kinesumer.core.liveness import Lease
from kinesumer.model.records import Record, memory_size
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.model.streams import HASH_KEYS, ShardKey, Start, Stream
from kinesumer.ports import Clock
from kinesumer.runtime.context import ClientContext
from kinesumer.telemetry.api import Telemetry
from kinesumer.testing.memory import MemoryKinesis, MemoryStore, memory_ports
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.wire import rows
from tests.support.clock import until
from tests.support.faulty import FaultyStore

T = TypeVar("T")

APP = "app"
SHARD = "shardId-000000000000"  # a stream's first shard
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"


def run_on(loop: VirtualLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time. Fail if the loop got an unhandled error."""
    result = loop.run(work)
    assert not loop.failures
    return result


def run(work: Coroutine[Any, Any, T], seed: int = 1) -> T:
    """Run a coroutine on a loop of its own in virtual time."""
    return run_on(VirtualLoop(Random(seed)), work)


def in_virtual_time(
    test: Callable[..., Coroutine[Any, Any, None]],
    make_world: Callable[[VirtualLoop], object] | None = None,
) -> Any:
    """Run a test in virtual time. Its first argument is a World, or what is made."""

    def run(*args: Any, **arguments: Any) -> None:
        loop = VirtualLoop(Random(0))
        run_on(loop, test((make_world or World)(loop), *args, **arguments))

    return as_test(run, test)


def as_test(
    run: Callable[..., None], play: Callable[..., Any], given: int = 1
) -> Callable[..., None]:
    """Return ``run`` as a test with the parameters of ``play`` but the first ones."""
    test = wraps(play)(run)
    signature = inspect.signature(play)
    left = list(signature.parameters.values())[given:]
    vars(test)["__signature__"] = signature.replace(parameters=left)
    del vars(test)["__wrapped__"]  # Hypothesis would pass arguments for all parameters
    return test


class World:
    """One table, one Kinesis, one clock, and the clients that use them.

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
        return f"id-{next(self._ids)}"

    def context(
        self,
        client_id: str = "c1",
        *,
        store: Any = None,
        telemetry: Telemetry | None = None,
        **config: Any,
    ) -> ClientContext:
        """Return a client's context; ``config`` are options of Config."""
        store = self.table if store is None else store
        return context_of(
            client_id, store, self.clock, self.new_id, telemetry, **config
        )

    def ports(
        self,
        clock: Clock | None = None,
        *,
        store: Any = None,
        source: Callable[[str], Any] | None = None,
        telemetry: Telemetry | None = None,
        connect_seconds: float = 0.0,
    ) -> Ports:
        """Return the ports of a client, with memory in place of AWS."""
        no_aws: Any = object()

        async def open_source(stream: Stream) -> Any:
            await asyncio.sleep(connect_seconds)
            return (source or self.kinesis.source)(stream.name)

        return memory_ports(
            clock or self.clock,
            Random(1),
            self.new_id,
            self.table if store is None else store,
            open_source,
            telemetry=telemetry,
            clients=no_aws,
        )

    def open(self, source: Any, **stream: Any) -> OpenStream:
        """Return an opened stream of a client, which is read through ``source``."""
        info = source.describe_now()
        start = stream.pop("start", Start.TRIM_HORIZON)
        return OpenStream(Stream(info.arn, **stream), source, info, start, self.clock)

    def client(self, client_id: str, *streams: StreamLike, **options: Any) -> Client:
        """Start a client on its own machine. The client consumes in the background."""
        return Client(self, client_id, streams or ("orders",), **options)

    def put(self, *texts: str, stream: str = "orders", hash_key: int = 0) -> None:
        """Append records of one key to the shard that has this hash key."""
        for text in texts:
            self.kinesis.put(stream, text.encode(), "key", hash_key)

    def shard_rows(self, stream: str = "orders") -> dict[str, ShardRow]:
        """Return the shard rows of a stream by shard id."""
        arn = self.kinesis.stream(stream).arn
        found = map(rows.read_shard, self.table.rows(rows.shard_partition(APP, arn)))
        return {row.key.shard_id: row for row in found}

    def members(self) -> dict[str, MemberRow]:
        found = map(rows.read_member, self.table.rows(f"member#{APP}"))
        return {row.client_id: row for row in found}

    async def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        await until(holds, seconds)


class InMemory(Kinesumer):
    """A client in which memory replaces AWS."""

    def __init__(
        self,
        world: World,
        client_id: str = "c1",
        *,
        ports: Ports | None = None,
        **config: Any,
    ) -> None:
        self.world = world
        self.store = FaultyStore(world.table)
        super().__init__(
            APP,
            table="table",
            client_id=client_id,
            config=Config(**config),
            _ports=ports or world.ports(store=self.store, connect_seconds=0.5),
        )

    @property
    def group(self) -> GroupConsumer:
        assert self._lifecycle.group is not None
        return self._lifecycle.group


class Client:
    """A complete client with heartbeats, and user code that only collects records."""

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
        telemetry: Telemetry | None = None,
        **config: Any,
    ) -> None:
        self.world = world
        self.machine = world.loop.machine(client_id)
        self.client = InMemory(
            world,
            client_id,
            ports=world.ports(
                self.machine, store=store, source=source, telemetry=telemetry
            ),
            **config,
        )
        self.records: Records | None = None
        self.seen: list[Record] = []
        self._handle = handle
        self._streams, self._start = list(streams), start
        self.task = world.loop.spawn(self.machine, self._consume())

    @property
    def group(self) -> GroupConsumer:
        return self.client.group

    @property
    def texts(self) -> list[str]:
        return [record.data.decode() for record in self.seen]

    @property
    def held(self) -> list[str]:
        """The ids of the shards that the client owns."""
        return sorted(key.shard_id for key in self.client.assignment())

    @property
    def leads(self) -> bool:
        """True if the client believes that it leads."""
        session = self.group.session
        return session is not None and session.leader.is_leading

    def kill(self) -> None:
        self.machine.kill()

    async def stop(self, *, wait_for_user: bool = True) -> None:
        """Stop the client's group, as leaving its ``async with`` block would."""
        await self.run(self.group.stop(wait_for_user=wait_for_user))

    def run(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine of the client on its machine."""
        return self.world.loop.spawn(self.machine, work)

    async def _consume(self) -> None:
        if self.records is None:
            await self.client.__aenter__()
            self.records = self.client.consume(self._streams, start=self._start)
        async for record in self.records:
            self.seen.append(record)
            if self._handle is not None:
                await self._handle(record)


def context_of(
    client_id: str,
    store: Any,
    clock: Clock,
    new_id: Callable[[], str],
    telemetry: Telemetry | None = None,
    **config: Any,
) -> ClientContext:
    """Return a client's context; ``config`` are options of Config."""
    return ClientContext.create(
        app=APP,
        client_id=client_id,
        config=Config(**config),
        store=store,
        clock=clock,
        random=Random(1),
        new_id=new_id,
        telemetry=telemetry,
    )


def shard_row(shard_id: str = "shardId-000000000000", **changes: Any) -> ShardRow:
    """Return the row of a newly claimed shard that covers the whole hash space."""
    row = ShardRow(ShardKey(ARN, shard_id), 0, HASH_KEYS - 1, Start.TRIM_HORIZON)
    return row._replace(epoch=1, owner="s1", owner_id="c1", ready=True, **changes)


def hold(
    row: ShardRow | None = None, max_uncommitted_records: int = 100_000
) -> OwnedShard:
    """Return an owned shard whose lease doesn't expire."""
    return OwnedShard(
        APP, row or shard_row(), Lease("s1", 1e9), max_uncommitted_records
    )


def batch_of(owned: OwnedShard, *numbers: int, size: int | None = None) -> FetchedBatch:
    """Return a batch of records with these sequence numbers."""
    source = owned.source
    records = [Record(str(n), b"data %d" % n, source=source) for n in numbers]
    owned.queued_records += len(records)
    size = memory_size(records) if size is None else size
    return FetchedBatch(records, 0, size, None, owned)


@pytest.fixture
def world() -> World:
    return World(VirtualLoop(Random(0)))


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> None:
    """Run async tests with an argument ``world`` on the loop of that world."""
    is_async_test = name.startswith("test_") and inspect.iscoroutinefunction(obj)
    if is_async_test and "world" in inspect.signature(obj).parameters:
        setattr(collector.obj, name, _in_virtual_time(obj))


def _in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    @wraps(test)
    def run(**arguments: Any) -> None:
        run_on(arguments["world"].loop, test(**arguments))

    return run
