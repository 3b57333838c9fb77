"""Read apps at a steady pace, and answer scrapes with the last readings."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kinesumer.admin.connect import NO_ROLES, Roles
from kinesumer.admin.lag import read_lags
from kinesumer.admin.observation import observe, track_unchanged
from kinesumer.admin.snapshot import read_snapshot
from kinesumer.errors import KinesumerError, TransientError
from kinesumer.exporter.metrics import AppMetrics, AppReading, build_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.core import Metric

    from kinesumer.admin.observation import Observation
    from kinesumer.aws.session import ClientFactory
    from kinesumer.model.streams import ShardKey
    from kinesumer.ports import Clock, StateStore

log = logging.getLogger("kinesumer.exporter")


class AppReader:
    """Reads one app repeatedly.

    The cost depends only on the interval, not on the number of scrapes.
    """

    def __init__(
        self, app: str, clock: Clock, roles: Roles = NO_ROLES, *, lag: bool = True
    ) -> None:
        self.metrics = AppMetrics(app, 0, 0, None)
        self._app, self._clock, self._roles, self._lag = app, clock, roles, lag
        self._before: Observation | None = None
        self._unconsumed: dict[ShardKey, tuple[bool, float]] = {}

    async def read(self, clients: ClientFactory, store: StateStore) -> None:
        """Read the rows and the lags once.

        A failure is counted, is logged when it begins, and removes the last reading,
        since outdated metrics must not look current. Only a permanent error of the
        first read is raised.
        """
        first, worked = not self.metrics.reads, self.metrics.reading is not None
        reads, errors = self.metrics.reads + 1, self.metrics.errors
        try:
            reading = await self._read(clients, store)
        except KinesumerError as error:
            self.metrics = AppMetrics(self._app, reads, errors + 1, None)
            if first and not isinstance(error, TransientError):
                raise
            if first or worked:
                log.warning("app %s couldn't be read: %s", self._app, error)
        else:
            self.metrics = AppMetrics(self._app, reads, errors, reading)
            if not (first or worked):
                log.warning("app %s can be read again", self._app)

    async def _read(self, clients: ClientFactory, store: StateStore) -> AppReading:
        began = self._clock.now()
        snapshot = await read_snapshot(store, self._app)
        now = self._clock.now()
        lags = None
        if self._lag:
            lags = await read_lags(clients, snapshot.shards, self._roles)
        self._before = observe(self._before, snapshot, lags.millis if lags else {}, now)
        unconsumed = {
            key: True for arn in snapshot.shards for key in snapshot.unconsumed(arn)
        }
        self._unconsumed = track_unchanged(self._unconsumed, unconsumed, now)
        since = {key: first for key, (_, first) in self._unconsumed.items()}
        seconds = self._clock.now() - began
        return AppReading(self._before, lags, since, self._clock.wall(), seconds)


class Exporter:
    """A collector for prometheus_client that answers from memory, in any thread."""

    def __init__(self, readers: Sequence[AppReader]) -> None:
        self._readers = readers

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last readings."""
        return build_metrics([reader.metrics for reader in self._readers])

    async def read(self, clients: ClientFactory, store: StateStore) -> None:
        """Read all apps once. Raises KinesumerError as ``AppReader.read``."""
        await asyncio.gather(*(reader.read(clients, store) for reader in self._readers))

    async def run(
        self, clients: ClientFactory, store: StateStore, interval_seconds: float
    ) -> None:
        """Read all apps at a steady pace, until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            await self.read(clients, store)
