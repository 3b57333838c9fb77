"""User code of a simulated client: handlers with faults, and what ``run()`` calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.errors import DeadLettersUnavailableError
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.invokers import refuse_awaitable
from kinesumer.handlers.options import read_run_options
from kinesumer.handlers.runner import HandlerRunner

if TYPE_CHECKING:
    from random import Random

    from kinesumer.dead_letters import DeadLetter
    from kinesumer.model.batch import Batch
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Fence, Record
    from kinesumer.simulation.machine import Machine
    from kinesumer.simulation.world import UserCode, World

RETRIES = RetryPolicy(max_attempts=2)
"""Few attempts, so that some records become dead letters."""
REJECTED_SHARE = 0.3
"""Share of the dead letters that the target rejects."""


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


class HandlerClient:
    """The handlers and dead letters of one ``run()``, which report to the checker."""

    def __init__(
        self, world: World, user_code: FaultyUserCode, machine: Machine, random: Random
    ) -> None:
        self._user_code = user_code
        self._machine = machine
        self._random = random
        self._checker = world.checker
        self._seen: set[tuple[Fence, Position]] = set()
        self._failed: dict[str, Record] = {}
        """Records that failed, by stream, shard and sequence number."""
        scenario = world.scenario
        options = read_run_options(
            self.batch if scenario.batches else self.record,
            batch=scenario.batches,
            concurrency=scenario.concurrency,
            dead_letters=self.put,
            retries=RETRIES,
        )
        self.handling = HandlerRunner(
            options,
            app=scenario.app,
            clock=machine,
            random=random,
            drain=world.config.drain_timeout_seconds,
        )
        self.handling.letters = self

    async def record(self, record: Record) -> None:
        """Handle a record."""
        await self._handle([record])

    async def batch(self, batch: Batch) -> None:
        """Handle a batch."""
        await self._handle(batch.records, batch)

    async def put(self, letter: DeadLetter) -> None:
        """Store a dead letter, or raise DeadLettersUnavailableError."""
        if self._random.random() < REJECTED_SHARE:
            raise DeadLettersUnavailableError("not now")
        self._checker.note("dead letter", self._machine.name, letter.sequence_number)
        self._checker.done(self._failed.pop(_place(letter)))

    async def aclose(self) -> None:
        """Do nothing."""

    async def _handle(self, records: list[Record], batch: Batch | None = None) -> None:
        for record in records:
            place = record.fence, record.position
            if place not in self._seen:  # else it is tried again
                self._seen.add(place)
                self._checker.delivered(self._machine, record)
        try:
            await self._user_code.run(records, batch)
        except Exception:
            self._failed.update((_place(record), record) for record in records)
            raise
        for record in records:
            self._checker.done(record)


def _place(at: Record | DeadLetter) -> str:
    return (
        f"{at.stream_arn} {at.shard_id} {at.sequence_number} {at.sub_sequence_number}"
    )
