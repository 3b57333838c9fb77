"""A simulation: an app's clients and operators in a world with faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from kinesumer.simulation.client import Process
from kinesumer.simulation.operator import Operator
from kinesumer.simulation.world import UserCode, World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesumer.simulation.scenarios import Scenario

T = TypeVar("T")


class Simulation(World):
    """One run: the clients of an app, and the other apps that consume its streams."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        user: UserCode | None = None,
        host: Simulation | None = None,
    ) -> None:
        super().__init__(scenario, seed, user, host)
        self.processes: list[Process] = []
        self.operators: list[Operator] = []
        self.on_start: list[Callable[[Process], None]] = []
        """Called with each process that starts."""
        self.background: list[asyncio.Task[Any]] = []
        self._names = count(0)
        self.apps = [self]
        """This app, and others that consume the same streams with their own tables."""
        if host is None:
            for number in range(2, scenario.apps + 1):
                other = replace(scenario, app=f"{scenario.app}-{number}", apps=1)
                self.apps.append(Simulation(other, seed, user, self))
            self.create_streams([app.checker for app in self.apps])

    def run(self, play: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in virtual time. Raises ViolationError."""
        return self.loop.run(play(self))

    @property
    def living(self) -> list[Process]:
        """The processes that are alive."""
        return [process for process in self.processes if process.alive]

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

    async def start_all(self) -> None:
        """Start the processes of the scenario, together or in turn."""
        for _ in range(self.scenario.members):
            self.start_process()
            if not self.scenario.together:
                await asyncio.sleep(2 * self.random.random())

    def end_faults(self) -> None:
        """End all faults of networks, user code and operators."""
        self.faults_ended = True
        self.store.write_units_per_second = None
        for process in self.processes:
            process.end_faults()
        while sum(not p.leaving for p in self.living) < min(2, self.scenario.members):
            self.start_process()
        for operator in self.operators:
            operator.end_faults()
        self.checker.note("calm", "")
        Operator(self, self.operators, "undo all orders", Operator.undo_all)
