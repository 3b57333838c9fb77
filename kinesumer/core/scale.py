"""Estimate the work that shards need, and how many clients it takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil, exp
from typing import Generic, NamedTuple, TypeVar

from kinesumer.core.load import SHARD_MICROSECONDS, UNKNOWN_SECONDS
from kinesumer.model.rows import MemberRow

K = TypeVar("K")

SHARD_SECONDS = SHARD_MICROSECONDS / 1e6
# Estimates follow a changed load by two thirds within this time.
SMOOTHING_SECONDS = 60.0
# Positions move in steps, so the speed of a shard that is behind is known after this
# time.
MIN_SPEED_SECONDS = 30.0
# A lag that grows by more seconds per second shows that the position was moved back.
MAX_GROWTH = 2.0
# A late backlog is removed in this share of the time to catch up, so that its last
# records don't need work without bounds.
MIN_REMAINING_SHARE = 0.1
# An overshoot that comes from rounding doesn't take another client.
ROUNDING = 1e-9


class ShardSample(NamedTuple):
    """One observation of a shard."""

    work: float | None  # seconds of work per second; None if unknown
    lag_seconds: float | None  # 0 if it is caught up; None if unknown


class ShardDemand(NamedTuple):
    """The seconds of work per second that a shard needs."""

    keep_up: float  # to read records as they arrive
    catch_up: float  # to remove the backlog in time, too


class _Sums(NamedTuple):
    """Sums of the times in which a shard's work was known, in seconds."""

    measured: float = 0.0
    # The smoothed work, and the smoothed time in which the records that were read had
    # arrived. While nothing is read, both fall, and their quotient stays.
    worked: float = 0.0
    arrived: float = 0.0


class _History(NamedTuple):
    """The results of a shard's samples so far."""

    at: float
    lag_at: float
    lag_seconds: float = 0.0
    behind_since: float | None = None
    sums: _Sums = _Sums()
    # The work for the records that arrive in a second.
    cost: float | None = None


class DemandEstimator(Generic[K]):
    """Estimates from repeated readings how much work each shard needs.

    A shard's lag shows how fast it is read, relative to the arrival of its records. So
    its work, divided by this speed, is the work that the arriving records need.
    """

    def __init__(self, catch_up_seconds: float) -> None:
        self._catch_up_seconds = catch_up_seconds
        self._histories: dict[K, _History] = {}

    def update(
        self, samples: Mapping[K, ShardSample], now: float
    ) -> dict[K, ShardDemand]:
        """Return the demand of each shard in ``samples``; forget all others.

        A shard whose cost is unknown counts as an average shard. If no cost is known,
        return nothing.
        """
        before = self._histories
        self._histories = {
            key: _extended(before.get(key, _History(now, now)), sample, now)
            for key, sample in samples.items()
        }
        costs = [h.cost for h in self._histories.values() if h.cost is not None]
        if not costs:
            return {}
        usual = sum(costs) / len(costs)
        return {
            key: self._demand(history, usual, now)
            for key, history in self._histories.items()
        }

    def _demand(self, history: _History, usual: float, now: float) -> ShardDemand:
        cost = usual if history.cost is None else history.cost
        keep_up = SHARD_SECONDS + cost
        if history.behind_since is None:
            return ShardDemand(keep_up, keep_up)
        # While the shard catches up as planned, lag and remaining time fall together,
        # so the demand stays the same until the shard has caught up.
        limit = self._catch_up_seconds
        remaining = max(
            limit - (now - history.behind_since), limit * MIN_REMAINING_SHARE
        )
        return ShardDemand(keep_up, keep_up + cost * history.lag_seconds / remaining)


def _extended(before: _History, sample: ShardSample, now: float) -> _History:
    lag, lag_at = before.lag_seconds, before.lag_at
    if sample.lag_seconds is not None:
        lag, lag_at = sample.lag_seconds, now
    elif now - lag_at > UNKNOWN_SECONDS:
        lag = 0.0
    behind_since = None
    if lag:
        behind_since = now if before.behind_since is None else before.behind_since
    sums, cost = before.sums, before.cost
    seconds, growth = now - before.at, lag - before.lag_seconds
    if sample.work is not None and growth <= MAX_GROWTH * seconds:
        work = max(0.0, sample.work - SHARD_SECONDS)
        sums = _added(sums, work, seconds, growth)
        is_known = sums.measured >= MIN_SPEED_SECONDS or not (lag or before.lag_seconds)
        if is_known and sums.arrived:
            cost = sums.worked / sums.arrived
        elif is_known and cost is None and not sums.measured:
            cost = work
    return _History(now, lag_at, lag, behind_since, sums, cost)


def _added(sums: _Sums, work: float, seconds: float, growth: float) -> _Sums:
    """Return the sums after a time in which the lag has grown by ``growth``."""
    kept = exp(-seconds / SMOOTHING_SECONDS)
    return _Sums(
        sums.measured + seconds,
        sums.worked * kept + work * seconds,
        sums.arrived * kept + max(0.0, seconds - growth),
    )


def clients_wanted(
    demands: Collection[float],
    clients: Sequence[MemberRow],
    target_utilization: float,
) -> int:
    """Return how many clients like the present ones the shards need.

    ``demands`` holds each shard's seconds of work per second. The client with the
    greatest weight then has ``target_utilization`` seconds of work per second. A shard
    has one client at a time, so there are at most as many clients as shards. All
    shards fit into the clients' ``max_shards``.
    """
    weights = [client.weight for client in clients]
    # The work of the client with the greatest weight, relative to the average client.
    heaviest = max(weights) * len(weights) / sum(weights) if weights else 1.0
    work = sum(min(demand, target_utilization) for demand in demands)
    by_work = ceil(work * heaviest / target_utilization - ROUNDING)
    limits = [c.max_shards for c in clients if c.max_shards is not None]
    by_limit = 1
    if limits and len(limits) == len(clients):
        by_limit = ceil(len(demands) * len(limits) / sum(limits) - ROUNDING)
    return max(1, min(max(by_work, by_limit), len(demands)))
