"""Observe which shards are busy, and how many clients the load needs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core import plan
from kinesumer.core.load import work_of
from kinesumer.core.ranking import greatest
from kinesumer.core.scale import DemandEstimator, ShardSample, clients_wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesumer.model.rows import ShardRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ops.group.observation import FleetView

LOAD, CATCH_UP = "load", "catch_up"


class ScaleOptions(NamedTuple):
    """The options of ``kinesumer metrics`` for scaling."""

    # The seconds of work per second that a client should have.
    target_utilization: float = 0.7
    catch_up_seconds: float = 600.0
    # This many shards have metrics of their own: the busiest and the furthest behind.
    top_shards: int = 20


class Scale(NamedTuple):
    """The number of clients that a group needs, and the group's busiest shards."""

    # By goal: ``load`` or ``catch_up``. Empty if no load is known.
    wanted: Mapping[str, int] = MappingProxyType({})
    busiest: tuple[ShardKey, ...] = ()
    slowest: tuple[ShardKey, ...] = ()


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
        lags = {row.key: _lag_seconds(row, fleet) for row in rows}
        known = {key: lag for key, lag in lags.items() if lag is not None}
        samples = {
            row.key: ShardSample(work.get(row.key), lags[row.key])
            for row in rows
            if _is_readable(row, fleet)
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
        clients = plan.assignable(plan.live_clients(fleet.snapshot.alive))
        target = self._options.target_utilization
        keep_up = [demand.keep_up for demand in demands]
        wanted = {LOAD: clients_wanted(keep_up, clients, target)}
        if has_lags:
            catch_up = [demand.catch_up for demand in demands]
            wanted[CATCH_UP] = clients_wanted(catch_up, clients, target)
        return wanted


def _is_readable(row: ShardRow, fleet: FleetView) -> bool:
    """Return whether more clients could read more of a shard."""
    return (
        row.ready
        and not row.ended
        and not row.is_isolated
        and fleet.snapshot.pause(row) is None
    )


def _lag_seconds(row: ShardRow, fleet: FleetView) -> float | None:
    """Return a shard's lag; 0 if its owner's commits explain it, None if unknown."""
    millis = fleet.lags.millis.get(row.key)
    if millis is None:
        return None
    return millis / 1000 if millis > fleet.expected_lag_millis(row.owner) else 0.0
