"""User code of a simulated client: it fails, hangs, is slow, or blocks the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.handlers.invokers import refuse_awaitable

if TYPE_CHECKING:
    from random import Random

    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.world import UserCode, World


class UserError(Exception):
    """User code fails."""


class FaultyUserCode:
    """Applies the faults that are due, and calls the user's handler."""

    def __init__(self, world: World, machine: Machine, random: Random) -> None:
        self.slow_until = 0.0
        self.failures_left = 0
        """How many of the next calls fail."""
        self._world = world
        self._machine = machine
        self._random = random
        self._blocks_until = 0.0
        self._block_seconds = 0.0
        self._hanging: asyncio.Event | None = None
        """The next call doesn't return until this is set."""

    def hang(self) -> None:
        """Let the next call hang."""
        self._hanging = self._hanging or asyncio.Event()

    def unhang(self) -> None:
        """Let a call that hangs continue."""
        if self._hanging is not None:
            self._hanging.set()
            self._hanging = None

    def block_each(self, seconds: float, duration_seconds: float) -> None:
        """Block the event loop with each record, up to ``seconds`` long, for a time."""
        self._block_seconds = seconds
        self._blocks_until = self._machine.loop.real + duration_seconds

    def end_faults(self) -> None:
        """End all faults of user code."""
        self.slow_until = self._blocks_until = 0.0
        self.failures_left = 0
        self.unhang()

    async def run(self, records: list[Record], batch: Batch | None = None) -> None:
        """Handle some records, in a way or the other. Raises UserError."""
        now = self._machine.loop.real
        if now < self._blocks_until:
            await self._block_at(len(records))
        if self.failures_left or self._hanging or now < self.slow_until:
            await self._apply_user_code_faults()
        if (user := self._world.user) is None:
            return
        if user.handler.takes_batches:
            await self._handle(user, batch)
        else:
            for record in records:
                await self._handle(user, record)

    async def _handle(self, user: UserCode, item: Record | Batch | None) -> None:
        handler = user.handler
        try:
            if handler.is_async:
                await handler.call(item)
            else:
                refuse_awaitable(handler.call(item))
        except user.restarts_after as error:
            if self._world.faults_ended:
                self._world.late_failure = error
            raise UserError from error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a test framework's, too
            self._world.loop.halted = self._world.loop.halted or error
            raise

    async def _apply_user_code_faults(self) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise UserError
        if self._hanging:
            await self._hanging.wait()
        draw = self._random.random
        await asyncio.sleep(60 * draw() if draw() < 0.03 else draw())

    async def _block_at(self, count: int) -> None:
        """Block the loop with each record, without a break between them."""
        loop = self._machine.loop
        for _ in range(count):
            if loop.real < self._blocks_until:
                await self._machine.busy(self._block_seconds * self._random.random())
