"""A simulation of an app: its services, clients, operators and checker."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.invariants.calls import RecordKey
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.operator import Operator
from kinesumer.testing.simulation.scenarios import Scenario, UserCode
from kinesumer.testing.simulation.world import World

T = TypeVar("T")


class Simulation(World):
    """One run: an app with its clients, and the other apps of its streams."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        user: UserCode | None = None,
        host: World | None = None,
    ) -> None:
        super().__init__(scenario, seed, user, host)
        self.apps: list[Simulation] = [self]
        self.processes: list[Process] = []
        self.operators: list[Operator] = []
        # Functions to call with each process that starts.
        self.on_start: list[Callable[[Process], None]] = []
        self.background: list[asyncio.Task[Any]] = []
        if host is None:
            for number in range(2, scenario.apps + 1):
                other = replace(scenario, app=f"{scenario.app}-{number}", apps=1)
                self.apps.append(Simulation(other, seed, user, self))
            self._create_streams()

    def run(self, play: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in virtual time. Raises ViolationError."""
        return self.loop.run(play(self))

    @property
    def living(self) -> list[Process]:
        """The processes that are alive."""
        return [process for process in self.processes if process.alive]

    @property
    def leader(self) -> Process | None:
        """The process that the leader's row names, or None if it is dead."""
        rows = self.store.rows(f"leader#{self.scenario.app}")
        leading = {row["client_id"] for row in rows}
        return next((p for p in self.living if p.client_id in leading), None)

    def is_consumed(self, stream: str) -> bool:
        """Return True if a living process consumes a stream."""
        return any(stream in process.streams for process in self.living)

    def start_process(
        self, client_id: str | None = None, streams: tuple[str, ...] | None = None
    ) -> Process:
        """Start a process on its own machine."""
        if client_id is None:
            client_id = f"client-{next(self._names)}"
        drift = self.scenario.drift * (2 * self.random.random() - 1)
        if streams is None:
            mixed = self.scenario.mixed
            streams = self.some_streams(self.random) if mixed else self.streams
        process = Process(self, client_id, streams, 1 + drift, len(self.processes))
        self.processes.append(process)
        for observe in self.on_start:
            observe(process)
        self.checker.note("start", client_id, process.streams)
        return process

    def killed(self, machine: Machine, key: RecordKey) -> None:
        """Kill the process whose user code got a deadly record.

        A supervisor starts it again some seconds later.
        """
        process = next(p for p in self.processes if p.machine is machine)
        self.deadly.killed(key)
        self.checker.note("dies", process.name, key.number)
        machine.kill()

        def again() -> None:
            if all(other.client_id != process.client_id for other in self.living):
                self.start_process(process.client_id, process.streams)

        self.loop.at_real(self.loop.real + 1 + 5 * self.random.random(), again)

    async def start_all(self) -> None:
        """Start the processes of the scenario, at once or one after the other."""
        for _ in range(self.scenario.members):
            self.start_process()
            if not self.scenario.together:
                await asyncio.sleep(2 * self.random.random())

    def _least_members(self) -> int:
        """Return how many clients suffice, also for some more shards."""
        least = min(2, self.scenario.members)
        if self.config.max_shards is None:
            return least
        opened = sum(len(self.kinesis.stream(name).open) for name in self.streams)
        return max(least, 2 + math.ceil(1.2 * opened / self.config.max_shards))

    def end_faults(self) -> None:
        """End all faults of the store, processes and operators."""
        self.faults_ended = True
        self.store.write_capacity = Bucket(math.inf)
        self.deadly.clear()
        self.kinesis.revive()
        for process in self.processes:
            process.end_faults()
        while sum(p.stays for p in self.living) < self._least_members():
            self.start_process()
        for operator in self.operators:
            operator.end_faults()
        self.checker.note("calm", "")
        Operator(self, self.operators, "undo all orders", Operator.undo_all)
