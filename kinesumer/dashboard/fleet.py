"""What the dashboard sees a fleet by: the state store and Kinesis, and nothing else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kinesumer.admin import snapshot
from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag import Lags, read_lags
from kinesumer.dashboard.throughput import Throughput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.aws.session import ClientFactory
    from kinesumer.ports import Clock, StateStore

COUNTING_SECONDS = 10.0
"""Clients store positions every five seconds: in between, none has moved."""


class StreamMeasurements(NamedTuple):
    """What reading the streams themselves tells."""

    lags: Lags
    rates: Mapping[str, float]
    """Records a second by stream; what isn't known isn't there."""


class FleetSource(Protocol):
    """One app, as it can be seen from outside."""

    async def read(self) -> Snapshot:
        """Return all rows. Raises KinesumerError."""
        ...

    async def measure(self, found: Snapshot) -> StreamMeasurements:
        """Ask Kinesis about the shards; what can't be read is a problem in the lags."""
        ...


class StoreFleetSource:
    """The fleet that a table knows under an app's name."""

    def __init__(
        self,
        app: str,
        clients: ClientFactory,
        store: StateStore,
        clock: Clock,
        roles: Roles = NO_ROLES,
    ) -> None:
        self._app, self._clients, self._store = app, clients, store
        self._clock, self._roles = clock, roles
        self._throughput = Throughput(clients, roles)
        self._rates: Mapping[str, float] = {}
        self._counted = -COUNTING_SECONDS

    async def read(self) -> Snapshot:
        """Return all rows. Raises KinesumerError."""
        return await snapshot.take(self._store, self._app)

    async def measure(self, found: Snapshot) -> StreamMeasurements:
        """Ask Kinesis about the shards; what can't be read is a problem in the lags."""
        lags, _ = await asyncio.gather(
            read_lags(self._clients, found.shards, self._roles), self._count(found)
        )
        return StreamMeasurements(lags, self._rates)

    async def _count(self, found: Snapshot) -> None:
        """Look how fast positions go on, over two commits of theirs at least."""
        now = self._clock.now()
        if now - self._counted < COUNTING_SECONDS:
            return
        self._counted = now
        positions = {
            row.key: row.position
            for page in found.shards.values()
            for row in page
            if row.position is not None
        }
        self._rates = await self._throughput.measure(positions, now)
