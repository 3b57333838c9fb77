"""The user code of simulated clients, which may be slow, hang or fail."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Literal

from kinesumer.client import Kinesumer
from kinesumer.consuming.owned_shard import CallbackCalls, OwnedShard
from kinesumer.coordination.group import GroupConsumer
from kinesumer.errors import DeadLettersUnavailableError, ShardsLostError
from kinesumer.handlers import RetryPolicy
from kinesumer.handlers.dead_letters.letter import DeadLetter
from kinesumer.handlers.invokers import refuse_awaitable
from kinesumer.model.batches import Batch
from kinesumer.model.owned import AssignedShard, RevokeReason
from kinesumer.model.positions import Position
from kinesumer.model.records import Fence, Record
from kinesumer.model.streams import Stream
from kinesumer.runtime.tasks import cancel_and_wait
from kinesumer.testing.simulation.invariants.calls import RecordKey, record_key
from kinesumer.testing.simulation.machine import Machine
from kinesumer.testing.simulation.scenarios import UserCode
from kinesumer.testing.simulation.world import World

# Few attempts, so that some records become dead letters.
RETRIES = RetryPolicy(max_attempts=2)


class UserError(Exception):
    """Simulated user code has failed."""


class FaultyUserCode:
    """Causes the current faults of user code, and calls the user's handler, if any."""

    def __init__(self, world: World, machine: Machine, random: Random) -> None:
        self.slow_until: float = 0.0
        self.failures_left: int = 0  # how many of the next calls will fail
        self.world, self.machine, self.random = world, machine, random
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
        self._blocks_until = self.machine.loop.real + duration_seconds

    def end_faults(self) -> None:
        """End all faults."""
        self.slow_until = self._blocks_until = 0.0
        self.failures_left = 0
        self._faults_ended.set()
        self.unhang()

    async def run(self, records: Sequence[Record], batch: Batch | None = None) -> None:
        """Handle some records. Raises UserError."""
        if (key := self.world.deadly.first_of(records)) is not None:
            self.world.killed(self.machine, key)
            await asyncio.Event().wait()
        now = self.machine.loop.real
        for _ in records:  # without a break between them
            if self.machine.loop.real < self._blocks_until:
                await self.machine.busy(self._block_seconds * self.random.random())
        await self.apply_faults(now)
        if (user := self.world.user) is None:
            return
        for item in [batch] if user.handler.takes_batches else records:
            call = partial(user.handler.call, item)
            await self._call(user, call, may_await=user.handler.is_async)

    async def call_back(
        self, name: Literal["on_assigned", "on_revoked"], *arguments: object
    ) -> None:
        """Call a callback of the user, with the current faults. Raises UserError."""
        await self.apply_faults(self.machine.loop.real)
        if (user := self.world.user) and (function := getattr(user, name)):
            await self._call(user, partial(function, *arguments), may_await=True)

    async def _call(
        self, user: UserCode, call: Callable[[], object], *, may_await: bool
    ) -> None:
        """Call the user's code. Only errors in ``restarts_after`` are expected."""
        try:
            result = call()
            if not may_await:
                refuse_awaitable(result)
            elif inspect.isawaitable(result):
                await result
        except user.restarts_after as error:
            if self.world.faults_ended:
                self.world.late_failure = error
            raise UserError from error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # even one of a test framework ends the run
            self.world.loop.halted = self.world.loop.halted or error
            raise

    async def apply_faults(self, now: float) -> None:
        """Be slow, hang or fail, as the faults at a time demand. Raises UserError."""
        if not (self.failures_left or self._hanging or now < self.slow_until):
            return
        if self.failures_left:
            self.failures_left -= 1
            raise UserError
        if self._hanging:
            await self._hanging.wait()
        draw = self.random.random
        with suppress(TimeoutError):
            async with asyncio.timeout(60 * draw() if draw() < 0.03 else draw()):
                await self._faults_ended.wait()


class SimulatedClient(Kinesumer):
    """A client whose group the checker looks into."""

    @property
    def group(self) -> GroupConsumer | None:
        """The client's group, or None before its start."""
        return self._lifecycle.group

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that the client owns now."""
        return () if self.group is None else self.group.owned_shards()


class UserSide:
    """The loops, or the handlers, of one client. They report to the checker."""

    def __init__(self, client: SimulatedClient, user_code: FaultyUserCode) -> None:
        self._client, self._user_code = client, user_code
        self._machine, self._random = user_code.machine, user_code.random
        self._world, self._checker = user_code.world, user_code.world.checker
        self._is_consuming = True
        self._unacked: list[Record] = []
        # Records that handlers got, which may get them again, and those that failed.
        self._delivered: set[tuple[Fence, Position]] = set()
        self._failed: dict[RecordKey, Record] = {}

    async def consume(self, streams: Sequence[Stream]) -> None:
        """Consume streams as the scenario says."""
        try:
            await self._consume(streams)
        finally:
            self._is_consuming = False

    async def _consume(self, streams: Sequence[Stream]) -> None:
        scenario = self._world.scenario
        options: dict[str, Any] = {"start": scenario.start}
        if scenario.callbacks:
            options |= {"on_assigned": self._assigned, "on_revoked": self._revoked}
        if scenario.concurrency:
            await self._client.run(
                streams,
                self._handle_batch if scenario.batches else self._handle_record,
                batch=scenario.batches,
                concurrency=scenario.concurrency,
                dead_letters=self._set_aside,
                retries=RETRIES,
                **options,
            )
            return
        acking = None if self._world.auto else asyncio.create_task(self._ack())
        records = self._client.consume(streams, **options)
        try:
            if scenario.tasks > 1:
                await self._each_batch_in_tasks(records.batches)
                while self._unacked:
                    self._ack_at(0)
            elif scenario.batches:
                await self._each_batch(records.batches())
            else:
                async for record in records:
                    await self._handle_record(record)
        finally:
            if acking is not None:
                acking.cancel()

    async def _each_batch_in_tasks(
        self, batches: Callable[[], AsyncIterator[Batch]]
    ) -> None:
        """Iterate over batches in several tasks; the first failure ends all of them."""
        shared = batches() if self._random.random() < 0.5 else None
        tasks = [
            asyncio.create_task(self._each_batch(shared or batches()))
            for _ in range(self._world.scenario.tasks)
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_and_wait(*tasks)

    async def _each_batch(self, batches: AsyncIterator[Batch]) -> None:
        async for batch in batches:
            await self._handle_batch(batch)

    # --- records ---

    async def _handle_record(self, record: Record) -> None:
        await self._handle([record])

    async def _handle_batch(self, batch: Batch) -> None:
        await self._handle(batch.records, batch)

    async def _handle(
        self, records: Sequence[Record], batch: Batch | None = None
    ) -> None:
        world, checker, fence = self._world, self._checker, records[0].fence
        for record in records:
            self._report(record)
        checker.calls.busy(self._machine, fence, 1)
        checker.turns.tried(self._machine, records[0])
        try:
            # Wait, so that other tasks take batches, and some are done out of order.
            if world.scenario.tasks > 1 and not world.faults_ended:
                await asyncio.sleep(self._random.random())
            await self._user_code.run(records, batch)
        except Exception:
            self._failed.update((record_key(record), record) for record in records)
            checker.turns.failed(self._machine, records[0])
            raise
        finally:
            checker.calls.busy(self._machine, fence, -1)
        if not world.auto:
            self._unacked += records
            return
        for record in records:
            checker.done(record)

    def _report(self, record: Record) -> None:
        """Report a record that user code gets, unless a handler gets it again."""
        key = record.fence, record.position
        if key not in self._delivered:
            self._checker.delivered(self._machine, record)
            if self._world.scenario.concurrency:
                self._delivered.add(key)

    async def _set_aside(self, letter: DeadLetter) -> None:
        """Store a dead letter, or raise DeadLettersUnavailableError."""
        if self._random.random() < 0.3:
            raise DeadLettersUnavailableError("unavailable due to a simulated fault")
        self._checker.note("dead letter", self._machine.name, letter.sequence_number)
        key = record_key(letter)
        if record := self._failed.pop(key, None):
            self._checker.done(record)
        else:
            self._checker.set_aside(key)

    # --- acknowledgements ---

    def _ack_at(self, index: int) -> None:
        record = self._unacked.pop(index)
        self._checker.done(record)
        self._client.ack(record)

    async def _ack(self) -> None:
        """Ack records in random order, as ``commit="manual"`` allows."""
        draw = self._random
        while True:
            await asyncio.sleep(draw.random())
            for _ in range(draw.randrange(1 + 2 * len(self._unacked))):
                if self._unacked:
                    self._ack_at(draw.randrange(len(self._unacked)))
            if draw.random() < 0.1 and self._client.group is not None:
                try:
                    await self._client.commit()
                except ShardsLostError as error:
                    self._checker.note("lost", self._machine.name, str(error))

    # --- callbacks ---

    async def _assigned(self, shard: AssignedShard) -> None:
        calls = self._checker.calls
        calls.assigning(self._machine, shard)
        for owned in self._client.owned_shards():
            if owned.source.fence[:2] == shard.fence[:2] and owned.calls is not None:
                note = partial(calls.given_up, self._machine, shard.fence)
                owned.calls = ReportedCalls(owned.calls, note)
        try:
            await self._user_code.call_back("on_assigned", shard)
        except BaseException:
            calls.over(self._machine, shard)
            raise
        calls.assigned(self._machine, shard)

    async def _revoked(self, shard: AssignedShard, reason: RevokeReason) -> None:
        calls = self._checker.calls
        calls.revoking(self._machine, shard, reason)
        try:
            self._ack_shard(shard)
            await self._user_code.call_back("on_revoked", shard, reason)
        finally:
            calls.over(self._machine, shard)

    def _ack_shard(self, shard: AssignedShard) -> None:
        """Ack the records of a shard that is revoked, at random."""
        if not self._is_consuming or self._random.random() < 0.5:
            return
        for index in reversed(range(len(self._unacked))):
            if self._unacked[index].fence[:2] == shard.fence[:2]:
                self._ack_at(index)


class ReportedCalls:
    """Calls of callbacks for a shard, which report when the client gives it up."""

    def __init__(self, calls: CallbackCalls, given_up: Callable[[], None]) -> None:
        self._calls, self._given_up = calls, given_up
        self.assign, self.end = calls.assign, calls.end

    def revoke(self, reason: RevokeReason) -> object:
        """Begin to call ``on_revoked``."""
        self._given_up()
        return self._calls.revoke(reason)

    async def release(
        self, reason: RevokeReason, seconds: float, *, waits_for_user: bool
    ) -> None:
        """Wait for ``on_revoked``."""
        self._given_up()
        await self._calls.release(reason, seconds, waits_for_user=waits_for_user)
