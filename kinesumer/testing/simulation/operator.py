"""Operators' commands for pauses, drains and seeks, which may be interrupted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from kinesumer.consuming.streams import OpenStream
from kinesumer.coordination import pauses
from kinesumer.coordination.state_store import PacedStore
from kinesumer.errors import KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start, Stream
from kinesumer.ops.group import changes, seek
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog, IncidentLog
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.network import (
    LinkedSource,
    LinkedStore,
    NetworkConditions,
)
from kinesumer.testing.simulation.world import World
from kinesumer.wire import admin_writes
from kinesumer.wire.rows import read_shard

Work = Callable[["Operator"], Awaitable[object]]


# The time between attempts to undo drains. One attempt isn't enough: a drained client
# whose session has died registers again, still as drained.
AGAIN_SECONDS = 10.0


class Operator:
    """One command of an operator, on a machine that may be killed."""

    world: World
    what: str

    def __init__(
        self, world: World, operators: list[Operator], what: str, work: Work
    ) -> None:
        self.world, self.what = world, what
        self.name: str = f"operator-{len(operators)}"
        self._operators = operators
        operators.append(self)
        self.random: random.Random = world.random_for(self.name)
        self.machine: Machine = world.loop.machine(self.name, 1.0)
        self.store: LinkedStore = LinkedStore(
            self.machine, self.random, world.store, world.checker
        )
        world.checker.seeks.operators.add(self.machine)
        self.context: ClientContext = ClientContext(
            app=world.scenario.app,
            client_id=self.name,
            config=world.config,
            store=PacedStore(self.store, self.machine, self.random),
            clock=self.machine,
            random=self.random,
            new_id=world.new_id,
            failure_log=FailureLog(self.machine),
            incidents=IncidentLog(self.machine),
        )
        world.checker.note("operator", self.name, what)
        self.task: asyncio.Task[None] = world.loop.spawn(self.machine, self._run(work))

    def die_after(self, steps: int) -> None:
        """Kill the machine after ``steps`` more callbacks."""
        self.machine.after_steps(steps, self.machine.kill)

    def stop_after(self, steps: int, seconds: float) -> None:
        """Freeze the machine for a time after ``steps`` more callbacks."""
        self.machine.after_steps(steps, lambda: self.machine.freeze(seconds))

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
            self.world.checker.note("refused", self.name, str(error))
        except Exception as error:
            self.world.report_crash(self.name, error)
        else:
            self.world.checker.note("done", self.name, self.what)

    # --- commands -------------------------------------------------------------------

    async def seek(self, name: str, to: Position | Start, shard_id: str | None) -> None:
        """Seek as ``kinesumer seek`` does."""
        stream = await self._open(name)
        planned = await seek.plan_seek(self.context, stream, to, shard_id)
        await seek.seek(self.context, planned)

    async def undo_all(self) -> None:
        """Undo pauses and drains when all other operators are done."""
        # A command that is still running could pause or drain something again.
        while any(other.busy for other in self._operators if other is not self):
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
        context, app = self.context, self.world.scenario.app
        for row in self.world.store.rows(f"group#{app}"):
            if row.get("paused"):
                arn = str(row["sk"]).removeprefix("stream#")
                await pauses.resume(context, arn if arn != row["sk"] else None)
        for name in self.world.streams:
            arn = self.world.arn(name)
            for row in self.world.store.rows(f"shard#{app}#{arn}"):
                if row.get("paused"):
                    shard_id = str(row["sk"]).partition("/")[2]
                    await pauses.resume(context, arn, shard_id)

    async def retry_poison(self) -> None:
        """Let stopped shards be read again from where they are.

        That is what an operator does after a correction of the user's code.
        """
        app = self.world.scenario.app
        for name in self.world.streams:
            for stored in self.world.store.rows(f"shard#{app}#{self.world.arn(name)}"):
                row = read_shard(stored)
                if row.poison is not None:
                    to = row.position or row.start
                    write = admin_writes.seek(app, row, to, waits=False)
                    await self.context.write(write)
                    await pauses.notify(self.context)

    async def undrain(self) -> None:
        """Undo all drains."""
        for row in self.world.store.rows(f"member#{self.world.scenario.app}"):
            if row.get("drained") and row.get("dead") is not True:
                try:
                    await changes.drain(self.context, str(row["sk"]), undo=True)
                except KinesumerError as error:  # the client has died
                    self.world.checker.note("refused", self.name, str(error))

    async def _open(self, name: str) -> OpenStream:
        source = self.world.kinesis.source(name)
        # Use a link without a clock error, so that the checker knows a seek's exact
        # time.
        link = LinkedSource(self.machine, self.random, source, NetworkConditions())
        info = await link.describe()
        return OpenStream(
            Stream(info.arn), link, info, Start.LATEST, self.context.clock
        )
