"""Simulate members that only send heartbeats, and sessions that watch them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from kinesumer.coordination.leader import Leader
from kinesumer.coordination.membership import Event, LeaderElected, SessionRenewed
from kinesumer.coordination.shard_sync import sync_shards
from kinesumer.core import plan
from kinesumer.core.liveness import Lease
from kinesumer.model.rows import LeaderRow, MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows, writes
from tests.support.faulty import FaultyStore
from tests.support.world import APP, ARN, World

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
        key = rows.member_key(APP, client_id)
        await self.world.table.write(Write(key, Compare("pk", "exists"), values))

    def silence(self, *client_ids: str) -> None:
        """Stop the heartbeats of members."""
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

    def __init__(
        self, fleet: Fleet, member: MemberRow, reaches: Iterable[str], **config: Any
    ) -> None:
        self.fleet, self.world = fleet, fleet.world
        self.member = member
        self.store = FaultyStore(self.world.table)
        self.lease = Lease(member.session, 1e9)
        self.assigned: list[MemberRow] = []
        self.elections = 0
        context = self.world.context(member.client_id, store=self.store, **config)
        self.leader = Leader(
            context, self.lease, member, frozenset(reaches), self._notify
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


async def sit(
    fleet: Fleet, client_id: str, *, reaches: Iterable[str] = (ARN,), **config: Any
) -> Seat:
    """Register a session that watches the members."""
    member = await fleet.join(client_id)
    return Seat(fleet, member, reaches, **config)


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


def shares(world: World) -> dict[str, int]:
    """Return how many of four equal shards are in each live member's range."""
    starts = {ARN: [n * HASH_KEYS // 4 for n in range(4)]}
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
