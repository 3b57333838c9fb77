"""Alternates storms with calm periods, and times single operations in calm periods."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from kinesumer import Config
from kinesumer.testing.trial.journal import now
from kinesumer.testing.trial.verdict import (
    Line,
    Verdict,
    judge_promises,
    judge_repeats,
    nothing,
)
from tests.system.chaos.backends import Backend
from tests.system.chaos.mishaps import MISHAPS
from tests.system.chaos.starvation import Canary
from tests.system.chaos.storm import Storm
from tests.system.chaos.timing import RESUBSCRIBE_SECONDS, Probe, times
from tests.system.process.fleet import QUICK, Fleet

STORM_SECONDS = 40.0
PATIENCE_SECONDS = 300.0
TIMES: dict[str, dict[str, Any]] = {
    "quick": QUICK | {"drain_timeout_seconds": 2.0, "max_processing_seconds": 6.0},
    "default": {"drain_timeout_seconds": 4.0, "max_processing_seconds": 12.0},
}
CONFIG: dict[str, Any] = {"max_uncommitted_records": 40, "buffer_bytes": 1 << 20}


class Plan(NamedTuple):
    minutes: float
    clients: int
    streams: int
    seed: int
    # With "default", leases and other intervals have their default lengths. With
    # "quick", they are shorter: a lease has three eighths of its default length.
    times: str = "quick"


class Campaign:
    def __init__(
        self, plan: Plan, backend: Backend, folder: Path, say: Callable[[str], None]
    ) -> None:
        self._plan, self._backend, self._say = plan, backend, say
        self._chance = random.Random(plan.seed)
        aborted = threading.Event()
        self._fleet = Fleet(backend.aws, f"chaos{plan.seed}", folder, aborted)
        self._storm = Storm(
            self._fleet, self._chance, plan.clients, plan.streams, backend.fan_out, say
        )
        self._canary = Canary(lambda: [c.process.pid for c in self._fleet.running])
        self._probes: list[Probe] = []

    def run(self) -> Verdict:
        end = now() + 60 * self._plan.minutes
        mishaps = [m for m in MISHAPS if m.name not in self._backend.without]
        with self._canary, self._fleet:
            self._set_up()
            while now() < end:
                seconds = min(STORM_SECONDS, end - now())
                self._storm.blow(seconds, mishaps)
                self._lull()
            self._fleet.drain()
            self._fleet.leave()
            return self._verdict()

    def _verdict(self) -> Verdict:
        fleet, canary, storm = self._fleet, self._canary, self._storm
        run, config = fleet.run(), fleet.config
        drain, limit = (
            config["drain_timeout_seconds"],
            config["max_uncommitted_records"],
        )
        return Verdict(
            [
                *judge_promises(run, fleet.processes.histories),
                *judge_repeats(run, drain, limit),
                *times(run, config, self._probes, canary, fleet.fan_out_arns),
                nothing("clients that ended by themselves", storm.unexpected),
                Line(
                    "clients waited for processors", f"{canary.share():.0%} of the time"
                ),
                Line("this process overslept at most", f"{canary.worst:.2f} s"),
                *(
                    Line(f"  {k}", f"{n} times")
                    for k, n in sorted(storm.counts.items())
                ),
            ]
        )

    def _set_up(self) -> None:
        fleet = self._fleet
        chosen = Config(**(TIMES[self._plan.times] | CONFIG))
        fleet.config = {f.name: getattr(chosen, f.name) for f in fields(chosen)}
        fleet.patience = PATIENCE_SECONDS
        for number in range(self._plan.streams):
            shards, fan_out = self._chance.randint(1, 4), self._storm.fan_out_of(number)
            fleet.stream(f"stream-{number}", shards, fan_out)
        fleet.produce(self._backend.per_second)
        for _ in range(self._plan.clients):
            self._storm.join()
        self._settle()

    # --- lulls -----------------------------------------------------------------------

    def _lull(self) -> None:
        began = now()
        self._settle()
        self._probes.append(Probe("storm over", began, now()))
        self._fleet.catch_up()
        self._retire_a_stream()
        self._settle()
        self._crash(led=self._chance.random() < 0.5)
        self._timed("join", self._storm.join)
        self._timed("leave", self._leave_one)
        self._timed("join", self._storm.join)
        self._fleet.catch_up()

    def _settle(self) -> None:
        self._fleet.settle(*(c.client_id for c in self._fleet.running))

    def _timed(self, kind: str, act: Callable[[], object]) -> None:
        if self._backend.fan_out:
            # Kinesis permits the next owner's subscriptions only after this time.
            self._fleet.pause(RESUBSCRIBE_SECONDS)
        began = now()
        act()
        self._settle()
        # Wait for new records, whose deliveries show which client reads each shard.
        self._fleet.pause(1)
        self._probes.append(Probe(kind, began, now()))

    def _crash(self, *, led: bool) -> None:
        leader = self._fleet.look().leader
        victim = self._chance.choice(
            [c for c in self._fleet.running if (c.client_id == leader) == led]
        )
        owned = frozenset(self._fleet.owned(victim.client_id))
        began = self._storm.kill(victim)
        self._settle()
        self._fleet.catch_up()
        kind = "the leader crashed" if led else "a client crashed"
        self._probes.append(Probe(kind, began, now(), owned))

    def _leave_one(self) -> None:
        leaver = self._chance.choice(self._fleet.running)
        self._storm.send_away(leaver)
        self._fleet.until(lambda: leaver.process.poll() is not None, "it leaves")
        self._storm.supervise()

    def _retire_a_stream(self) -> None:
        fleet, storm = self._fleet, self._storm
        if len(fleet.streams) <= self._plan.streams:
            return
        oldest, rest = fleet.streams[0], fleet.streams[1:]
        fleet.producer.switch([stream.name for stream in rest])
        fleet.pause(1)
        fleet.catch_up()
        storm.consume(rest)
        fleet.state.arns.remove(oldest.name)
        storm.note("a stream is retired by refresh", oldest.name.rpartition("/")[2])
