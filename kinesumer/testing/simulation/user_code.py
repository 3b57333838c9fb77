"""The user code of simulated clients, which may be slow, hang or fail."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from typing import TYPE_CHECKING

from kinesumer.consuming.assignment_callbacks import AssignmentCallbacks, ShardCalls
from kinesumer.errors import DeadLettersUnavailableError
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.invokers import refuse_awaitable
from kinesumer.handlers.runner import HandlerRunner
from kinesumer.handlers.stream_handlers import read_handlers
from kinesumer.testing.simulation.invariants.calls import record_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.handlers.dead_letters.letter import DeadLetter
    from kinesumer.model.owned import AssignedShard, RevokeReason
    from kinesumer.model.positions import Position
    from kinesumer.model.records import Batch, Fence, Record
    from kinesumer.testing.simulation.invariants.calls import Calls
    from kinesumer.testing.simulation.machine import Machine
    from kinesumer.testing.simulation.scenarios import UserCode
    from kinesumer.testing.simulation.world import World


class SimulatedCallbacks(AssignmentCallbacks):
    """Callbacks that report to the checker.

    ``on_revoking`` is called first in each call of ``on_revoked``.
    """

    machine: Machine
    checker: Calls

    def __init__(
        self,
        machine: Machine,
        checker: Calls,
        user_code: FaultyUserCode,
        on_revoking: Callable[[AssignedShard], None],
    ) -> None:
        super().__init__(self._assigned, self._revoked, in_threads=False)
        self.machine, self.checker = machine, checker
        self._user_code, self._on_revoking = user_code, on_revoking

    def begin(self, owned: OwnedShard) -> ShardCalls:
        """Return the calls for a shard that was claimed."""
        calls = _ReportedCalls(self, owned, self._last.get(owned.key))
        self._last[owned.key] = calls
        return calls

    async def _assigned(self, shard: AssignedShard) -> None:
        self.checker.assigning(self.machine, shard)
        try:
            await self._user_code.assigned(shard)
        except BaseException:
            self.checker.over(self.machine, shard)
            raise
        self.checker.assigned(self.machine, shard)

    async def _revoked(self, shard: AssignedShard, reason: RevokeReason) -> None:
        self.checker.revoking(self.machine, shard, reason)
        try:
            self._on_revoking(shard)
            await self._user_code.revoked(shard, reason)
        finally:
            self.checker.over(self.machine, shard)


class _ReportedCalls(ShardCalls):
    """Reports when a client begins to give its shard up."""

    def revoke(self, reason: RevokeReason) -> asyncio.Task[bool]:
        """Begin to call ``on_revoked``."""
        callbacks = self._callbacks
        assert isinstance(callbacks, SimulatedCallbacks)
        callbacks.checker.given_up(callbacks.machine, self.owned.source.fence)
        return super().revoke(reason)


# Few attempts, so that some records become dead letters.
RETRIES = RetryPolicy(max_attempts=2)
# Share of the dead letters that the target rejects.
REJECTED_SHARE = 0.3


class UserError(Exception):
    """Simulated user code has failed."""


class FaultyUserCode:
    """Causes the current faults of user code, and calls the user's handler, if any."""

    slow_until: float

    def __init__(self, world: World, machine: Machine, random: Random) -> None:
        self.slow_until = 0.0
        # How many of the next calls will fail.
        self.failures_left: int = 0
        self._world, self._machine, self._random = world, machine, random
        self._blocks_until = self._block_seconds = 0.0
        # Slow calls return at once when this is set, so that no fault outlasts its end.
        self._faults_ended = asyncio.Event()
        # If this isn't None, calls hang until the event is set.
        self._hanging: asyncio.Event | None = None

    def hang(self) -> None:
        """Let the next call hang until ``unhang()`` is called."""
        self._hanging = self._hanging or asyncio.Event()

    def unhang(self) -> None:
        """Let a call that hangs continue."""
        if self._hanging is not None:
            self._hanging.set()
            self._hanging = None

    def block_each(self, seconds: float, duration_seconds: float) -> None:
        """For some time, block the event loop up to ``seconds`` with each record."""
        self._block_seconds = seconds
        self._blocks_until = self._machine.loop.real + duration_seconds

    def end_faults(self) -> None:
        """End all faults."""
        self.slow_until = self._blocks_until = 0.0
        self.failures_left = 0
        self._faults_ended.set()
        self.unhang()

    async def run(self, records: list[Record], batch: Batch | None = None) -> None:
        """Handle some records. Raises UserError."""
        if (key := self._world.deadly.first_of(records)) is not None:
            self._world.killed(self._machine, key)
            await asyncio.Event().wait()
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

    async def assigned(self, shard: AssignedShard) -> None:
        """Call ``on_assigned``, with the current faults. Raises UserError."""
        await self._pause()
        if (user := self._world.user) is not None and user.on_assigned is not None:
            await self._call_back(user, user.on_assigned, shard)

    async def revoked(self, shard: AssignedShard, reason: RevokeReason) -> None:
        """Call ``on_revoked``, with the current faults. Raises UserError."""
        await self._pause()
        if (user := self._world.user) is not None and user.on_revoked is not None:
            await self._call_back(user, user.on_revoked, shard, reason)

    async def _pause(self) -> None:
        now = self._machine.loop.real
        if self.failures_left or self._hanging or now < self.slow_until:
            await self._apply_user_code_faults()

    async def _call_back(
        self, user: UserCode, function: Callable[..., object], *arguments: object
    ) -> None:
        async def call() -> None:
            result = function(*arguments)
            if inspect.isawaitable(result):
                await result

        await self._guard(user, call())

    async def _handle(self, user: UserCode, item: Record | Batch | None) -> None:
        async def call() -> None:
            if user.handler.is_async:
                await user.handler.call(item)
            else:
                refuse_awaitable(user.handler.call(item))

        await self._guard(user, call())

    async def _guard(self, user: UserCode, call: Awaitable[None]) -> None:
        """Wait for the user's code. Only errors in ``restarts_after`` are expected."""
        try:
            await call
        except user.restarts_after as error:
            if self._world.faults_ended:
                self._world.late_failure = error
            raise UserError from error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # even one of a test framework ends the run
            self._world.loop.halted = self._world.loop.halted or error
            raise

    async def _apply_user_code_faults(self) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise UserError
        if self._hanging:
            await self._hanging.wait()
        draw = self._random.random
        with suppress(TimeoutError):
            async with asyncio.timeout(60 * draw() if draw() < 0.03 else draw()):
                await self._faults_ended.wait()

    async def _block_at(self, count: int) -> None:
        """Block the loop with each record, without a break between them."""
        loop = self._machine.loop
        for _ in range(count):
            if loop.real < self._blocks_until:
                await self._machine.busy(self._block_seconds * self._random.random())


class HandlerClient:
    """The handlers and dead letters of one ``run()``. They report to the checker."""

    def __init__(
        self,
        world: World,
        user_code: FaultyUserCode,
        machine: Machine,
        random: Random,
    ) -> None:
        self._user_code = user_code
        self._machine, self._random = machine, random
        self._checker = world.checker
        self._delivered: set[tuple[Fence, Position]] = set()
        # Records that failed, by stream, shard and sequence number.
        self._failed: dict[str, Record] = {}
        scenario = world.scenario
        handlers = read_handlers(
            scenario.app,
            self.batch if scenario.batches else self.record,
            {
                "batch": scenario.batches,
                "concurrency": scenario.concurrency,
                "dead_letters": self.put,
                "retries": RETRIES,
            },
        )
        self.handling: HandlerRunner = HandlerRunner(
            handlers,
            app=scenario.app,
            clock=machine,
            random=random,
            drain=world.config.drain_timeout_seconds,
        )

    async def record(self, record: Record) -> None:
        """Handle a record."""
        await self._handle([record])

    async def batch(self, batch: Batch) -> None:
        """Handle a batch."""
        await self._handle(batch.records, batch)

    async def put(self, letter: DeadLetter) -> None:
        """Store a dead letter, or raise DeadLettersUnavailableError."""
        if self._random.random() < REJECTED_SHARE:
            raise DeadLettersUnavailableError("unavailable due to a simulated fault")
        self._checker.note("dead letter", self._machine.name, letter.sequence_number)
        if (record := self._failed.pop(_record_key(letter), None)) is not None:
            self._checker.done(record)
        else:
            self._checker.set_aside(record_key(letter))

    async def aclose(self) -> None:
        """Do nothing."""

    async def _handle(self, records: list[Record], batch: Batch | None = None) -> None:
        for record in records:
            key = record.fence, record.position
            if key not in self._delivered:  # not a retry
                self._delivered.add(key)
                self._checker.delivered(self._machine, record)
        self._checker.calls.busy(self._machine, records[0].fence, 1)
        try:
            await self._user_code.run(records, batch)
        except Exception:
            self._failed.update((_record_key(record), record) for record in records)
            self._checker.turns.failed(self._machine, records[0])
            raise
        finally:
            self._checker.calls.busy(self._machine, records[0].fence, -1)
        for record in records:
            self._checker.done(record)


def _record_key(at: Record | DeadLetter) -> str:
    return (
        f"{at.stream_arn} {at.shard_id} {at.sequence_number} {at.sub_sequence_number}"
    )
