"""Read apps at regular intervals, and answer scrapes from the last readings."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kinesumer.errors import KinesumerError, TransientError
from kinesumer.ops.exporter.metrics import AppMetrics, AppReading, build_metrics
from kinesumer.ops.exporter.scale import ScaleObserver, ScaleOptions
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.lag import NO_LAGS, read_lags
from kinesumer.ops.group.observation import observe
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.ops.group.status import report

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client.core import Metric

    from kinesumer.aws.session import ClientFactory
    from kinesumer.ops.group.observation import Observation
    from kinesumer.ports import Clock, StateStore

DEFAULT_OPTIONS = ScaleOptions()

log: logging.Logger = logging.getLogger("kinesumer.exporter")


class AppReader:
    """Reads one app repeatedly, and keeps the metrics of the last reading.

    Scrapes cause no reads.
    """

    def __init__(
        self,
        app: str,
        clock: Clock,
        roles: Roles = NO_ROLES,
        *,
        lag: bool = True,
        options: ScaleOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.metrics: AppMetrics = AppMetrics(app, 0, 0, None)
        self._app, self._clock, self._roles, self._lag = app, clock, roles, lag
        self._before: Observation | None = None
        self._scale = ScaleObserver(options)

    async def read(self, clients: ClientFactory, store: StateStore) -> None:
        """Read the rows and the lags once.

        A failed read is counted, and removes the last reading. Only the first of
        several failures in a row is logged. An error is raised only by the first read
        of all, and only if the error is permanent.
        """
        first, worked = not self.metrics.reads, self.metrics.reading is not None
        reads, errors = self.metrics.reads + 1, self.metrics.errors
        try:
            reading = await self._read(clients, store)
        except KinesumerError as error:
            # Remove the last reading, so that outdated metrics don't look current.
            self.metrics = AppMetrics(self._app, reads, errors + 1, None)
            if first and not isinstance(error, TransientError):
                raise
            # Log only the first failure, since an outage may last for many intervals.
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
        lags = NO_LAGS
        if self._lag:
            lags = await read_lags(clients, snapshot.shards, self._roles)
        self._before = observe(self._before, snapshot, lags, now)
        scale = self._scale.observe(self._before, now, has_lags=self._lag)
        seconds = self._clock.now() - began
        found = report(self._app, "", self._before)
        at = self._clock.wall()
        return AppReading(found, self._before, self._lag, at, seconds, scale)


class Exporter:
    """A collector for prometheus_client that answers from memory, in any thread."""

    def __init__(self, readers: Sequence[AppReader]) -> None:
        self._readers = readers

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of the last readings."""
        return build_metrics([reader.metrics for reader in self._readers])

    async def read(self, clients: ClientFactory, store: StateStore) -> None:
        """Read all apps once. Raises the same errors as ``AppReader.read()``."""
        await asyncio.gather(*(reader.read(clients, store) for reader in self._readers))

    async def run(
        self, clients: ClientFactory, store: StateStore, interval_seconds: float
    ) -> None:
        """Read all apps at regular intervals until cancelled."""
        while True:
            await asyncio.sleep(interval_seconds)
            await self.read(clients, store)
