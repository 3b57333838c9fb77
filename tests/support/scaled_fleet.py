"""Simulate clients that read shards, and an autoscaler that follows what is wanted."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

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
    """Clients that read shards, with noise, and an autoscaler like the examples'.

    The autoscaler follows a ``goal``: a field of ShardDemand, or the "present" work.
    """

    def __init__(
        self,
        shards: int,
        work: float,
        lag_seconds: float,
        seed: int,
        goal: str = "catch_up",
    ) -> None:
        self.random = Random(seed)
        shares = [self.random.uniform(0.5, 1.5) for _ in range(shards)]
        self.costs = [work * share / sum(shares) for share in shares]
        self.lags = [lag_seconds] * shards
        self.clients, self.goal = 1, goal
        self.estimator = DemandEstimator[int](LIMIT_SECONDS)
        self.wanted: list[int] = []

    def run(self, seconds: int) -> Run:
        clients, caught_up_at = [], None
        for now in range(0, seconds, EVERY_SECONDS):
            works = self._works(self._read(), float(now))
            member = MemberRow("c", "session")
            self.wanted.append(
                clients_wanted(works, [member], TARGET) if works else self.clients
            )
            if now % 60 == 0:
                self._scale()
            clients.append(self.clients)
            if caught_up_at is None and max(self.lags) < COMMIT_SECONDS:
                caught_up_at = now
        return Run(clients, caught_up_at)

    def _works(self, samples: dict[int, ShardSample], now: float) -> list[float]:
        if self.goal == "present":
            return [sample.work or 0.0 for sample in samples.values()]
        demands = self.estimator.update(samples, now).values()
        return [getattr(demand, self.goal) for demand in demands]

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
