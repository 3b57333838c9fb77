"""Read apps at regular intervals, and answer scrapes from the last readings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from prometheus_client.core import Metric

from kinesumer.aws.session import ClientFactory
from kinesumer.core.load import work_of
from kinesumer.core.scale import DemandEstimator, ShardSample, clients_wanted
from kinesumer.errors import KinesumerError, TransientError
from kinesumer.model.streams import ShardKey
from kinesumer.ops.exporter.metrics import (
    CATCH_UP,
    LOAD,
    AppMetrics,
    AppReading,
    Scale,
    build_metrics,
)
from kinesumer.ops.group.connect import NO_ROLES, Roles
from kinesumer.ops.group.lag import NO_LAGS, read_lags
from kinesumer.ops.group.observation import FleetView, Observation, observe
from kinesumer.ops.group.snapshot import read_snapshot
from kinesumer.ops.group.status import report
from kinesumer.ports import Clock, StateStore

K = TypeVar("K", bound="ShardKey | str")

# A value replaces a selected one if it is greater by more than this factor.
KEEP_RATIO = 1.5


class ScaleOptions(NamedTuple):
    """The options of ``kinesumer metrics`` for scaling."""

    # The seconds of work per second that a client should have.
    target_utilization: float = 0.7
    catch_up_seconds: float = 600.0
    # This many shards have metrics of their own: the busiest and the furthest behind.
    top_shards: int = 20


def greatest(
    values: Mapping[K, float], selected: Collection[K], count: int
) -> tuple[K, ...]:
    """Return the keys of the ``count`` greatest values, the greatest first.

    ``selected`` are the keys that were selected before. They are preferred, so that
    noise rarely changes the selection.
    """

    def order(key: K) -> tuple[float, bool, K]:
        is_new = key not in selected
        return -values[key] * (1 if is_new else KEEP_RATIO), is_new, key

    return tuple(sorted(values, key=order)[:count])


class ScaleObserver:
    """Follows the load and the lag of a group's shards from reading to reading."""

    def __init__(self, options: ScaleOptions) -> None:
        self._options = options
        self._demands: DemandEstimator[ShardKey] = DemandEstimator(
            options.catch_up_seconds
        )
        self._before = Scale()

    def observe(self, fleet: FleetView, now: float, *, has_lags: bool) -> Scale:
        """Return what a reading shows, together with the readings before it."""
        count, before = self._options.top_shards, self._before
        loads = fleet.loads.of_shards
        work = {key: work_of(load) / 1e6 for key, load in loads.items()}
        rows = list(fleet.snapshot.rows)
        lags = {row.key: fleet.backlog_millis(row) for row in rows}
        known = {key: lag / 1000 for key, lag in lags.items() if lag is not None}
        samples = {
            row.key: ShardSample(work.get(row.key), known.get(row.key))
            for row in rows
            # More clients could read more of these shards.
            if row.ready
            and not (row.ended or row.is_isolated or fleet.snapshot.pause(row))
        }
        self._before = Scale(
            self._wanted(fleet, samples, now, has_lags=has_lags),
            greatest(work, before.busiest, count),
            greatest(known, before.slowest, count),
        )
        return self._before

    def _wanted(
        self,
        fleet: FleetView,
        samples: Mapping[ShardKey, ShardSample],
        now: float,
        *,
        has_lags: bool,
    ) -> dict[str, int]:
        demands = self._demands.update(samples, now).values()
        if not demands:
            return {}
        clients = fleet.snapshot.assignable
        target = self._options.target_utilization
        keep_up = [demand.keep_up for demand in demands]
        wanted = {LOAD: clients_wanted(keep_up, clients, target)}
        if has_lags:
            catch_up = [demand.catch_up for demand in demands]
            wanted[CATCH_UP] = clients_wanted(catch_up, clients, target)
        return wanted


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
        return AppReading(found, self._lag, at, seconds, scale)


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
