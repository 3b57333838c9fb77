"""Reads apps at a steady pace, and answers scrapes with what was found last."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kinesumer.admin import snapshot
from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag import read_lags
from kinesumer.admin.observation import observe
from kinesumer.admin.status import track_unchanged
from kinesumer.errors import KinesumerError, TransientError
from kinesumer.exporter.metrics import (
    AppMetrics,
    AppReading,
    build_metrics,
    unconsumed_shards,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.core import Metric

    from kinesumer.admin.observation import Observation
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import Clock, StateStore

log = logging.getLogger("kinesumer.exporter")


class AppReader:
    """One app, read again and again.

    What it costs depends on the pace only, not on how many ask for the metrics.
    """

    def __init__(
        self, app: str, clock: Clock, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self.account = AppMetrics(app, 0, 0, None)
        self._app, self._clock, self._roles, self._lag = app, clock, roles, lag
        self._before: Observation | None = None
        self._neglected: dict[ShardKey, tuple[bool, float]] = {}

    async def read(self, clients: ClientFactory, store: StateStore) -> None:
        """Read the rows and the lags once.

        A failure is counted, logged when it begins, and takes what was known away:
        metrics must not look fresh that aren't. Only what no waiting mends is raised,
        and that at the first reading only.
        """
        first, worked = not self.account.reads, self.account.look is not None
        reads, errors = self.account.reads + 1, self.account.errors
        try:
            look = await self._look(clients, store)
        except KinesumerError as error:
            self.account = AppMetrics(self._app, reads, errors + 1, None)
            if first and not isinstance(error, TransientError):
                raise
            if first or worked:
                log.warning("app %s couldn't be read: %s", self._app, error)
        else:
            self.account = AppMetrics(self._app, reads, errors, look)
            if not (first or worked):
                log.warning("app %s can be read again", self._app)

    async def _look(self, clients: ClientFactory, store: StateStore) -> AppReading:
        began = self._clock.now()
        found = await snapshot.take(store, self._app)
        now = self._clock.now()
        lags = None
        if self._lag:
            lags = await read_lags(clients, found.shards, self._roles)
        millis = lags.millis if lags else {}
        self._before = observe(self._before, found, millis, now)
        states = dict.fromkeys(unconsumed_shards(found), True)
        self._neglected = track_unchanged(self._neglected, states, now)
        since = {key: moment for key, (_, moment) in self._neglected.items()}
        seconds = self._clock.now() - began
        return AppReading(self._before, lags, since, self._clock.wall(), seconds)


class Exporter:
    """A collector for prometheus_client: it answers from memory, in any thread."""

    def __init__(self, readings: Sequence[AppReader]) -> None:
        self._readings = readings

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they were last read."""
        return build_metrics([reading.account for reading in self._readings])

    async def read(self, clients: ClientFactory, store: StateStore) -> None:
        """Read all apps once. Raises KinesumerError as ``Reading.read`` does."""
        await asyncio.gather(*(one.read(clients, store) for one in self._readings))

    async def run(
        self, clients: ClientFactory, store: StateStore, every_seconds: float
    ) -> None:
        """Read all apps at a steady pace, until cancelled."""
        while True:
            await asyncio.sleep(every_seconds)
            await self.read(clients, store)
