"""Simulate how plans by load follow changing loads, in virtual time.

Clients, their heartbeats and the leader's plans are simulated, with the library's own
measurement, rows and assignor. The records and the state store aren't simulated, so
that fleets of many clients can be simulated for minutes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from kinesumer.config import Config
from kinesumer.core import plan as plans
from kinesumer.core.load import (
    KnownLoads,
    LoadAverages,
    LoadMeter,
    report_loads,
    work_of,
)
from kinesumer.core.rebalance import MOVING_BEATS, LoadSchedule
from kinesumer.model.reports import Load
from kinesumer.model.rows import MemberRow
from kinesumer.model.streams import HASH_KEYS, ShardKey
from kinesumer.wire.reports import load_text, max_entries, read_loads

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
STREAMS = frozenset({ARN})
RECORD_BYTES = 1000
# About what is left of a write unit in the row of a client of one stream.
ROOM_BYTES = 600


def zipf(shards: int, random: Random, records_per_second: float) -> list[float]:
    """Return the rates of shards by Zipf's law, in random order."""
    rates = [1 / rank for rank in range(1, shards + 1)]
    random.shuffle(rates)
    return [rate * records_per_second / sum(rates) for rate in rates]


def _ranges(work: Iterable[int], most: int) -> int:
    """Return into how many ranges shards must be cut, so that none has more work.

    A range with a single shard may have more.
    """
    count = 0
    room = -1
    for size in work:
        room -= size
        if room < 0:
            count += 1
            room = max(0, most - size)
    return count


@dataclass
class LoadFleet:
    """Clients that read one stream, each shard at its own rate with noise."""

    rates: list[float]
    """Records per second of each shard."""
    clients: int
    random: Random
    handler_seconds: float = 0.001
    """Seconds that user code spends on a record."""
    noise: float = 0.3
    """The greatest deviation of a rate from its mean, drawn for each second."""
    config: Config = field(default_factory=lambda: Config(assignor="load"))

    def __post_init__(self) -> None:
        """Start with the clients' first plan, before any load is known."""
        count = len(self.rates)
        self.now: float = 0.0
        self.moved: int = 0
        self.starts: list[int] = [
            number * HASH_KEYS // count for number in range(count)
        ]
        self.shards: dict[str, list[int]] = {ARN: self.starts}
        self.members: dict[str, MemberRow] = {}
        self._averages: dict[str, LoadAverages[int]] = {}
        self._loads = KnownLoads()
        self._plan: plans.Plan = {}
        self._moves_at = 0.0
        self._schedule = LoadSchedule(self.config.rebalance_interval_seconds)
        self._owner: list[str | None] = [None] * count
        self._meters = [LoadMeter() for _ in self.rates]
        for number in range(self.clients):
            self._join(f"client-{number:04}")
        self._make_plan()
        self._apply()
        self.moved = 0

    def join(self, client_id: str) -> None:
        """Let a client join, and plan for it."""
        self._join(client_id)
        self._make_plan()

    def leave(self, client_id: str) -> None:
        """Let a client leave, and plan for the others."""
        del self.members[client_id]
        self._make_plan()

    def run(self, seconds: float) -> None:
        """Let time pass."""
        beat = self.config.heartbeat_interval_seconds
        for _ in range(round(seconds)):
            self.now += 1
            self._read()
            if self.now >= self._moves_at:
                self._apply()
            if self.now % beat == 0:
                self._send_heartbeats()
            if self._schedule.looks(self.now):
                self._follow_load()

    def busiest(self) -> float:
        """Return the work of the busiest client, relative to the mean.

        Clients with a single shard don't count, since no plan can give them less.
        """
        sums, counts = dict.fromkeys(self.members, 0), dict.fromkeys(self.members, 0)
        work = self._work()
        for owner, size in zip(self._owner, work, strict=True):
            if owner in sums:
                sums[owner] += size
                counts[owner] += 1
        mean = sum(work) / len(self.members)
        return max(sums[c] / mean for c in sums if counts[c] > 1)

    def lowest_busiest(self) -> float:
        """Return what ``busiest()`` would return after the best cut into ranges.

        No plan with one range for each client can do better.
        """
        work = self._work()
        low, high = 0, sum(work)
        while low < high:
            middle = (low + high) // 2
            if _ranges(work, middle) <= len(self.members):
                high = middle
            else:
                low = middle + 1
        return high * len(self.members) / sum(work)

    def _work(self) -> list[int]:
        """Return the work of each shard without noise."""
        return [
            work_of(Load(rate * RECORD_BYTES, rate, rate * self.handler_seconds))
            for rate in self.rates
        ]

    def plan(self) -> plans.Plan:
        """Return the plan for the present members and their loads."""
        work = plans.Work(*self._loads.work(self.shards, self.now))
        members = list(self.members.values())
        assignor = self.config.assignor
        return plans.make_plan(members, self.shards, assignor, STREAMS, work)

    def _join(self, client_id: str) -> None:
        row = MemberRow(client_id, client_id, streams=STREAMS)
        self.members = dict(sorted({**self.members, client_id: row}.items()))
        self._averages[client_id] = LoadAverages()

    def _read(self) -> None:
        """Count a second's records of each shard."""
        for meter, rate in zip(self._meters, self.rates, strict=True):
            records = rate * (1 + self.noise * (2 * self.random.random() - 1))
            meter.records += records  # type: ignore[assignment]
            meter.size += records * RECORD_BYTES  # type: ignore[assignment]
            meter.handler_seconds += records * self.handler_seconds

    def _send_heartbeats(self) -> None:
        held: dict[str, dict[int, LoadMeter]] = {c: {} for c in self.members}
        for number, (owner, meter) in enumerate(
            zip(self._owner, self._meters, strict=True)
        ):
            if owner in held:
                held[owner][number] = meter
        for client_id, member in self.members.items():
            averages = self._averages[client_id].update(held[client_id], self.now)
            known = {
                (ShardKey(ARN, str(number)), self.starts[number]): load
                for number, load in averages.items()
            }
            entries = max_entries(ROOM_BYTES, len(STREAMS), len(known))
            reports = report_loads(known, entries)
            text = load_text(reports, STREAMS)
            self.members[client_id] = member._replace(load=text)

    def _follow_load(self) -> None:
        reports = (read_loads(m.load, m.streams) for m in self.members.values())
        self._loads.observe(chain.from_iterable(reports), self.shards)
        is_better = self.plan() != self._plan
        is_due = self._schedule.is_due(self.now, is_better=is_better)
        if is_due and self.now >= self._moves_at:
            self._make_plan()

    def _make_plan(self) -> None:
        self._plan = self.plan()
        self.members = {
            client_id: member._replace(range=self._plan[client_id].range)
            for client_id, member in self.members.items()
        }
        self._schedule.record_plan(self.now)
        beat = self.config.heartbeat_interval_seconds
        self._moves_at = self.now + MOVING_BEATS * beat

    def _apply(self) -> None:
        """Move the shards as planned. Each new owner measures its load again."""
        for client_id, part in self._plan.items():
            for _, first, last in part.range:
                begin = bisect_left(self.starts, first)
                for number in range(begin, bisect_right(self.starts, last)):
                    if self._owner[number] != client_id:
                        self._owner[number] = client_id
                        self._meters[number] = LoadMeter()
                        self.moved += 1
