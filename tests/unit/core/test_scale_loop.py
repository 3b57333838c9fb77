"""Test that a fleet that follows the wanted clients catches up, and comes to rest."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple

import pytest

from kinesumer.core.scale import (
    SHARD_SECONDS,
    DemandEstimator,
    ShardSample,
    clients_wanted,
)
from kinesumer.model.rows import MemberRow

EVERY_SECONDS = 10
LIMIT_SECONDS = 600
TARGET = 0.7
COMMIT_SECONDS = 5.0


class Run(NamedTuple):
    """The number of clients at each reading, and when all shards had caught up."""

    clients: list[int]
    caught_up_at: int | None


class ScaledFleet:
    """Clients that read shards, with noise, and an autoscaler like the examples'."""

    def __init__(self, shards: int, work: float, lag_seconds: float, seed: int) -> None:
        self.random = Random(seed)
        shares = [self.random.uniform(0.5, 1.5) for _ in range(shards)]
        self.costs = [work * share / sum(shares) for share in shares]
        self.lags = [lag_seconds] * shards
        self.clients = 1
        self.estimator = DemandEstimator[int](LIMIT_SECONDS)
        self.wanted: list[int] = []

    def run(self, seconds: int) -> Run:
        clients, caught_up_at = [], None
        for now in range(0, seconds, EVERY_SECONDS):
            demands = self.estimator.update(self._read(), float(now)).values()
            member = MemberRow("c", "session")
            catch_up = [demand.catch_up for demand in demands]
            self.wanted.append(
                clients_wanted(catch_up, [member], TARGET) if demands else self.clients
            )
            if now % 60 == 0:
                self._scale()
            clients.append(self.clients)
            if caught_up_at is None and max(self.lags) < COMMIT_SECONDS:
                caught_up_at = now
        return Run(clients, caught_up_at)

    def _read(self) -> dict[int, ShardSample]:
        """Let each client read successive shards, and return what a reading shows."""
        found, count = {}, len(self.costs)
        for client in range(self.clients):
            first = count * client // self.clients
            shards = range(first, count * (client + 1) // self.clients)
            backlog = {
                shard: self.costs[shard]
                * self.random.uniform(0.7, 1.3)
                * (self.lags[shard] + EVERY_SECONDS)
                for shard in shards
            }
            share = min(1.0, EVERY_SECONDS / sum(backlog.values()))
            for shard in shards:
                done = backlog[shard] * share
                left = self.lags[shard] + EVERY_SECONDS - done / self.costs[shard]
                self.lags[shard] = max(0.0, left)
                # The stored position trails by up to a commit interval.
                seen = self.lags[shard] + self.random.uniform(0, COMMIT_SECONDS)
                found[shard] = ShardSample(
                    done / EVERY_SECONDS + SHARD_SECONDS,
                    seen if seen > COMMIT_SECONDS + 1 else 0.0,
                )
        return found

    def _scale(self) -> None:
        """Follow the least number of a minute up, and the most of ten minutes down."""
        lowest, highest = min(self.wanted[-6:]), max(self.wanted[-60:])
        if lowest > self.clients:
            self.clients = min(2 * self.clients, lowest)
        elif highest < self.clients:
            self.clients = max(highest, self.clients - max(1, self.clients // 4))


def turns(clients: list[int]) -> int:
    """Return how often the number of clients begins to rise or to fall."""
    steps = [after - before for before, after in pairwise(clients) if after != before]
    return sum((before > 0) != (after > 0) for before, after in pairwise(steps))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("shards", "work", "lag_seconds"), [(16, 4.0, 300.0), (64, 8.0, 600.0)]
)
def test_a_backlog_is_removed_soon_and_then_the_clients_go(
    shards: int, work: float, lag_seconds: float, seed: int
) -> None:
    run = ScaledFleet(shards, work, lag_seconds, seed).run(3600)
    assert run.caught_up_at is not None
    # The fleet first grows for five minutes. Shards cannot be divided between clients.
    assert run.caught_up_at <= 1.7 * LIMIT_SECONDS
    assert turns(run.clients) == 1
    assert abs(run.clients[-1] - work / TARGET) < 2


@pytest.mark.parametrize("seed", range(3))
def test_a_saturated_fleet_grows_to_what_the_load_needs_and_stays(seed: int) -> None:
    run = ScaledFleet(16, 4.0, 0.0, seed).run(3600)
    assert max(run.clients) <= 2 * run.clients[-1]
    assert turns(run.clients) <= 1
    assert abs(run.clients[-1] - 4.0 / TARGET) < 2
