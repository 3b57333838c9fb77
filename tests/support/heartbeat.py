"""Run a heartbeater without a client, and record its writes and events."""

from __future__ import annotations

from typing import Any

from kinesumer.consuming.watchdog import InFlightWork
from kinesumer.coordination.heartbeat import Heartbeater
from kinesumer.coordination.member_reports import MemberReports
from kinesumer.coordination.membership import Event, SessionRenewed
from kinesumer.core.liveness import Lease
from kinesumer.model.rows import MemberRow, Value
from kinesumer.model.streams import FanOutUse
from kinesumer.ports import Compare, Write
from kinesumer.wire import rows
from tests.support.faulty import FaultyStore
from tests.support.world import APP, ARN, World


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
        """Return the events of a kind."""
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
        key = rows.member_key(APP, self.client_id)
        await self.world.table.write(Write(key, Compare("pk", "exists"), values))

    def beats(self) -> list[tuple[int, float]]:
        """Return the heartbeats that the store has confirmed, with their times."""
        alive = [(at, e) for at, e in self.events if isinstance(e, SessionRenewed)]
        return [(event.row.beat, at) for at, event in alive]


async def registered(world: World) -> Body:
    """Return a client that is registered and has a plan."""
    body = Body(world)
    await body.registered()
    return body
