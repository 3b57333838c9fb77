"""A simulation of an app: its clients, and the operators who command them."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination import pauses
from kinesumer.coordination.state_store import PacedStore
from kinesumer.errors import KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.rows import ShardRow
from kinesumer.model.streams import Start, Stream
from kinesumer.ops.group import changes, seek
from kinesumer.runtime.context import ClientContext
from kinesumer.telemetry.recorded_calls import recorded
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.fleet_client import FleetProcess
from kinesumer.testing.simulation.invariants.calls import RecordKey
from kinesumer.testing.simulation.kcl_worker import KclWorker
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.network import (
    LinkedStore,
    NetworkConditions,
)
from kinesumer.testing.simulation.other_version import (
    OtherProcess,
    OtherVersion,
    load_version,
)
from kinesumer.testing.simulation.scenarios import Scenario, UserCode
from kinesumer.testing.simulation.world import World
from kinesumer.wire import admin_writes
from kinesumer.wire.rows import read_shard

Work = Callable[["Operator"], Awaitable[object]]

# The time between attempts to undo drains. One isn't enough: a drained client whose
# session has died registers again, still as drained.
AGAIN_SECONDS = 10.0
# Shares of the new processes that run another version. Each deploy brings another one.
VERSION_SHARES = (0.0, 0.5, 1.0)

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
        self.other_version: OtherVersion | None = None
        if scenario.other_version:
            self.other_version = load_version(scenario.other_version)
        self._versions = self.random_for("versions")
        # The share of the new processes that run the other version.
        self.other_version_share: float = self._versions.choice(VERSION_SHARES)
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
    def members(self) -> list[Process]:
        """The clients that are alive, without the KCL workers beside them."""
        return [process for process in self.living if process.is_member]

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
        process = self._new_process(
            self, client_id, streams, 1 + drift, len(self.processes)
        )
        self.processes.append(process)
        for observe in self.on_start:
            observe(process)
        self.checker.note("start", client_id, process.streams)
        return process

    def _new_process(self, *arguments: Any) -> Process:
        share = self.other_version_share
        if self.scenario.kcl_fleet:
            is_worker = self._versions.random() < share
            return (KclWorker if is_worker else FleetProcess)(*arguments)
        if self.other_version is None or self._versions.random() >= share:
            return Process(*arguments)
        process = OtherProcess(self.other_version, *arguments)
        self.checker.note("other version", process.name)
        return process

    def choose_version(self) -> None:
        """Change which version new processes run: this one, the other, or either.

        In a KCL fleet, the KCL's workers are the other version.
        """
        shares = [each for each in VERSION_SHARES if each != self.other_version_share]
        self.other_version_share = self._versions.choice(shares)

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
        Operator(self, "undo all orders", Operator.undo_all)


# --- operators ------------------------------------------------------------------------


class Operator:
    """One command of an operator, on a machine that may be killed."""

    def __init__(self, sim: Simulation, what: str, work: Work) -> None:
        self.sim = sim
        self.what = what
        self.name: str = f"operator-{len(sim.operators)}"
        sim.operators.append(self)
        self.random: random.Random = sim.random_for(self.name)
        self.machine: Machine = sim.loop.machine(self.name, 1.0)
        self.store: LinkedStore = LinkedStore(
            self.machine, self.random, NetworkConditions(), sim.store, sim.checker
        )
        store = recorded(self.store, sim.new_history(self.name))
        sim.checker.seeks.operators.add(self.machine)
        self.context: ClientContext = ClientContext.create(
            app=sim.scenario.app,
            client_id=self.name,
            config=sim.config,
            store=PacedStore(store, self.machine, self.random),
            clock=self.machine,
            random=self.random,
            new_id=sim.new_id,
        )
        sim.checker.note("operator", self.name, what)
        self.task: asyncio.Task[None] = sim.loop.spawn(self.machine, self._run(work))

    @property
    def busy(self) -> bool:
        """True while the operator's command is running."""
        return self.machine.alive and not self.task.done()

    def end_faults(self) -> None:
        """End the faults of the operator's network and machine."""
        self.store.network.clear()
        self.machine.after_steps_action = None

    async def _run(self, work: Work) -> None:
        try:
            await work(self)
        except KinesumerError as error:
            self.sim.checker.note("refused", self.name, str(error))
        except Exception as error:
            self.sim.report_crash(self.name, error)
        else:
            self.sim.checker.note("done", self.name, self.what)

    async def seek(self, name: str, to: Position | Start, shard_id: str | None) -> None:
        """Seek as ``kinesumer seek`` does."""
        stream = await self._open(name)
        planned = await seek.plan_seek(self.context, stream, to, shard_id)
        await seek.seek(self.context, planned)

    async def undo_all(self) -> None:
        """Undo pauses and drains when all other operators are done."""
        # A command that is still running could pause or drain something again.
        while any(other.busy for other in self.sim.operators if other is not self):
            await asyncio.sleep(1)
        await self.resume()
        await self.undrain()
        await self.retry_poison()
        await pauses.notify(self.context)
        for _ in range(3):
            await asyncio.sleep(AGAIN_SECONDS)
            await self.undrain()
            await self.retry_poison()

    async def resume(self) -> None:
        """Resume everything that is paused."""
        context, app = self.context, self.sim.scenario.app
        for row in self.sim.store.rows(f"group#{app}"):
            if row.get("paused"):
                arn = str(row["sk"]).removeprefix("stream#")
                await pauses.resume(context, arn if arn != row["sk"] else None)
        for shard in self._shard_rows():
            if shard.paused:
                await pauses.resume(context, shard.key.stream_arn, shard.key.shard_id)

    async def retry_poison(self) -> None:
        """Let stopped shards be read again from where they are.

        That is what an operator does after a correction of the user's code.
        """
        for row in self._shard_rows():
            if row.poison is not None:
                to = row.position or row.start
                write = admin_writes.seek(self.context.app, row, to, waits=False)
                await self.context.write(write)
                await pauses.notify(self.context)

    def _shard_rows(self) -> Iterator[ShardRow]:
        for name in self.sim.streams:
            pk = f"shard#{self.sim.scenario.app}#{self.sim.arn(name)}"
            yield from map(read_shard, self.sim.store.rows(pk))

    async def undrain(self) -> None:
        """Undo all drains."""
        for row in self.sim.store.rows(f"member#{self.sim.scenario.app}"):
            if row.get("drained") and row.get("dead") is not True:
                try:
                    await changes.drain(self.context, str(row["sk"]), undo=True)
                except KinesumerError as error:  # the client has died
                    self.sim.checker.note("refused", self.name, str(error))

    async def _open(self, name: str) -> OpenStream:
        # Without a clock error, the checker knows a seek's exact time.
        link = self.sim.source(self.machine, self.random, NetworkConditions(), name)
        info = await link.describe()
        return OpenStream(
            Stream(info.arn), link, info, Start.LATEST, self.context.clock
        )
