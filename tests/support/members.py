"""Simulate members that only send heartbeats, and sessions that watch them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from kinesumer.consuming.watchdog import InFlightWork
from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.leader import Leader
from kinesumer.coordination.member_reports import MemberReports
from kinesumer.coordination.membership import Event, LeaderElected, SessionRenewed
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.coordination.state_store import StoreThread
from kinesumer.core import plan
from kinesumer.core.liveness import Lease
from kinesumer.model.rows import LeaderRow, MemberRow, Value
from kinesumer.model.streams import HASH_KEYS, FanOutUse, Interval
from kinesumer.runtime.clock import SystemClock
from kinesumer.runtime.context import ClientContext
from kinesumer.testing.memory import MemoryStore
from kinesumer.wire import rows, writes
from tests.support.faulty import FaultyStore
from tests.support.row_edits import member_key, spoil
from tests.support.world import APP, ARN, World, context_of

WHOLE = (Interval(ARN, 0, HASH_KEYS - 1),)


class Fleet:
    """The members of the app. The test controls their heartbeats."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.beating: dict[str, MemberRow] = {}
        self.unavailable = False
        self.task = world.loop.create_task(self._beat())

    async def join(self, client_id: str, **fields: Any) -> MemberRow:
        """Register a member that sends heartbeats from now on."""
        session = fields.pop("session", f"session of {client_id}")
        fields.setdefault("streams", frozenset({ARN}))
        member = MemberRow(client_id, session, **fields)
        before = self.row(client_id) if client_id in self.world.members() else None
        if before is not None:
            member = member._replace(incarnation=before.incarnation + 1)
        now = rows.timestamp_text(self.world.clock.wall())
        write = writes.register(APP, member, before, now)
        assert (await self.world.table.write(write)).applied
        self.beating[client_id] = member
        return member

    async def change(self, client_id: str, **values: Any) -> None:
        """Change attributes of a member's row. Its later heartbeats keep them."""
        self.beating[client_id] = self.beating[client_id]._replace(**values)
        await spoil(self.world, member_key(client_id), **values)

    def silence(self, *client_ids: str) -> None:
        for client_id in client_ids:
            del self.beating[client_id]

    def row(self, client_id: str) -> MemberRow:
        return self.world.members()[client_id]

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(1)
            if self.unavailable:
                continue
            for client_id, member in list(self.beating.items()):
                beat = self.row(client_id).beat + 1
                write = writes.heartbeat(
                    APP, member, beat, state=member.state, lease_ms=member.lease_ms
                )
                await self.world.table.write(write)


class Seat:
    """A session that watches the members."""

    def __init__(self, fleet: Fleet, member: MemberRow, **config: Any) -> None:
        self.fleet, self.world = fleet, fleet.world
        self.member = member
        self.store = FaultyStore(self.world.table)
        self.lease = Lease(member.session, 1e9)
        self.assigned: list[MemberRow] = []
        self.elections = 0
        context = self.world.context(member.client_id, store=self.store, **config)
        self.leader = Leader(
            context, self.lease, member, frozenset({ARN}), self._notify
        )
        self.task = self.world.loop.create_task(self.leader.run())
        self.following = self.world.loop.create_task(self._follow())

    @property
    def leads(self) -> bool:
        return self.leader.is_leading

    def leave(self) -> None:
        """Stop reading and heartbeats, as after SIGKILL."""
        self.task.cancel()
        self.fleet.silence(self.member.client_id)

    def _notify(self, event: Event) -> None:
        match event:
            case SessionRenewed(_, row):
                self.assigned.append(row)
            case LeaderElected():
                self.elections += 1

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.leader.member = self.fleet.row(self.member.client_id)


async def sit(fleet: Fleet, client_id: str, **config: Any) -> Seat:
    """Register a session that watches the members."""
    return Seat(fleet, await fleet.join(client_id), **config)


async def lay_baseline(world: World, shards: int = 4, stream: str = "orders") -> str:
    """Create a stream and the rows of its shards; return its ARN."""
    world.kinesis.create_stream(stream, shards)
    opened = world.open(world.kinesis.source(stream))
    await sync_shards(world.context(), opened)
    return opened.arn


def leader_row(world: World) -> LeaderRow:
    (row,) = world.table.rows(f"leader#{APP}")
    return rows.read_leader(row)


async def fleet_of(world: World, *client_ids: str, shards: int = 4) -> Fleet:
    """Return a fleet whose members send heartbeats, for a stream with shard rows."""
    await lay_baseline(world, shards)
    fleet = Fleet(world)
    for client_id in client_ids:
        await fleet.join(client_id)
    return fleet


def shares(world: World, shards: int = 4) -> dict[str, int]:
    """Return how many of the equal shards are in each live member's range."""
    starts = {ARN: [n * HASH_KEYS // shards for n in range(shards)]}
    parts = {
        client_id: plan.Assignment(0, member.range or (), frozenset())
        for client_id, member in world.members().items()
        if not member.dead
    }
    return plan.shares(parts, starts)


async def lead(
    world: World, *client_ids: str, seconds: float = 5
) -> tuple[Fleet, Seat]:
    """Return a fleet and its leader "c0", which has watched it for some seconds."""
    fleet = await fleet_of(world, *client_ids)
    seat = await sit(fleet, "c0")
    await asyncio.sleep(seconds)
    return fleet, seat


class Body:
    """One client's heartbeater, with its store and its events."""

    def __init__(self, world: World, client_id: str = "c1", **config: Any) -> None:
        self.world = world
        self.client_id = client_id
        self.store = FaultyStore(world.table)
        self.events: list[tuple[float, Event]] = []
        self.busy_since: float | None = None
        self.fan_out: dict[str, FanOutUse] = {}
        self.context = world.context(client_id, store=self.store, **config)
        self.heartbeater = Heartbeater(
            self.context,
            streams=frozenset({ARN}),
            notify=self._notify,
            oldest_work=self._oldest_work,
            fan_out=lambda: self.fan_out,
            reports=MemberReports(self.context, lambda: ()),
        )
        self.task = world.loop.create_task(self.heartbeater.run())

    def _oldest_work(self) -> InFlightWork | None:
        since = self.busy_since
        return (
            None
            if since is None
            else InFlightWork(since, "user code", lambda: "a stack")
        )

    def _notify(self, event: Event) -> None:
        self.events.append((self.world.clock.now(), event))

    def events_of(self, kind: type[Event]) -> list[Any]:
        return [event for _, event in self.events if isinstance(event, kind)]

    @property
    def lease(self) -> Lease:
        lease: Lease = self.events_of(SessionRenewed)[-1].lease
        return lease

    @property
    def row(self) -> MemberRow:
        return self.world.members()[self.client_id]

    async def registered(self) -> MemberRow:
        """Wait for the registration, and store a plan. Heartbeats are then regular."""
        await self.world.until(lambda: self.events_of(SessionRenewed))
        await self.change(range="", index=0)
        return self.row

    async def change(self, **values: Value) -> None:
        """Change attributes of the client's row, as another client would."""
        await spoil(self.world, member_key(self.client_id), **values)

    def beats(self) -> list[tuple[int, float]]:
        """Return the heartbeats that the store has confirmed, with their times."""
        alive = [(at, e) for at, e in self.events if isinstance(e, SessionRenewed)]
        return [(event.row.beat, at) for at, event in alive]


async def registered(world: World) -> Body:
    """Return a client that is registered and has a plan."""
    body = Body(world)
    await body.registered()
    return body


@asynccontextmanager
async def store_thread(store: MemoryStore) -> AsyncIterator[StoreThread]:
    """Yield a thread that uses this store. The thread ends with the block."""

    @asynccontextmanager
    async def open_store() -> AsyncIterator[MemoryStore]:
        yield store

    thread = StoreThread(open_store)
    try:
        yield thread
    finally:
        await thread.stop()


async def thread_context(thread: StoreThread, **config: Any) -> ClientContext:
    """Start a thread, and return the context of a client that uses its store."""
    clock, ids = SystemClock(), map(str, count())
    config = {"heartbeat_interval_seconds": 0.1, **config}
    store = await thread.start()
    return context_of("c1", store, clock, lambda: next(ids), **config)
