"""A client process of a simulation: the real engine, and user code that misbehaves."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.coordination.group import GroupConsumer
from kinesumer.errors import ClientIdInUseError, FatalError, ShardsLostError
from kinesumer.handlers.invokers import refuse_awaitable
from kinesumer.model.streams import Stream
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.simulation.bandwidth import SharedLink
from kinesumer.simulation.handler_client import Called
from kinesumer.simulation.heartbeat import SimulatedHeart
from kinesumer.simulation.network import LinkedSource, LinkedStore, Weather

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from kinesumer.consuming.delivery_protocol import DeliveryProtocol
    from kinesumer.model.batch import Batch
    from kinesumer.model.records import Record
    from kinesumer.simulation.world import Simulation, User


class UserError(Exception):
    """User code fails."""


class Process:
    """A process that consumes until it is told to leave or is killed."""

    def __init__(
        self, sim: Simulation, client_id: str, streams: tuple[str, ...], rate: float
    ) -> None:
        self.sim = sim
        self.client_id = client_id
        self.streams = streams
        self.random: Random = sim.random_for(f"process {len(sim.processes)}")
        self.machine = sim.loop.machine(client_id, rate)
        self.heart_thread = self.machine.thread("heart")
        self.store = self._linked_store()
        """Its calls are made on the heart's thread."""
        self.sources = Weather()
        if not sim.is_calm:
            self.sources.set(skew=sim.shape.skew_seconds)
        self.line = SharedLink(sim.loop, sim.shape.link_bytes_per_second)
        self.line.changed = lambda: sim.liveness.check_memory(self)
        self.heart_store = self._linked_store(self.store.weather)
        self.slow_until = 0.0
        self.blocks_until = 0.0
        self.blocks_seconds = 0.0
        """For how long user code blocks the event loop with each record until then."""
        self.fails = 0
        """How many of the next records user code fails at."""
        self._stuck: asyncio.Event | None = None
        """User code doesn't finish its next record until this is set."""
        self.leaving = False
        self.group: GroupConsumer | None = None
        self.ended_with: BaseException | None = None
        self.refused: ClientIdInUseError | None = None
        self._in_hand: list[Record] = []
        self.task = sim.loop.spawn(self.machine, self._main())

    @property
    def alive(self) -> bool:
        """Whether it runs (or is frozen)."""
        return self.machine.alive and not self.task.done()

    @property
    def name(self) -> str:
        """The client id."""
        return self.client_id

    # --- what happens to it ---

    def kill(self) -> None:
        """SIGKILL, after a few more callbacks of one of the threads."""
        thread = self.random.choice((self.machine, self.heart_thread))
        thread.after_steps(self.random.randrange(8), self.machine.kill)

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """SIGSTOP, after a few more callbacks of one of the threads."""
        thread = self.random.choice((self.machine, self.heart_thread))
        thread.after_steps(
            self.random.randrange(8),
            lambda: self.machine.freeze(seconds, suspend=suspend),
        )

    def set_wall_clock(self, seconds: float) -> None:
        """Set the computer's wall clock forward or back."""
        for machine in (self.machine, self.heart_thread):
            machine.wall_offset += seconds

    def set_clock_rate(self, rate: float) -> None:
        """Let the computer's clocks run faster or slower."""
        for machine in (self.machine, self.heart_thread):
            machine.set_rate(rate)

    def hang(self) -> None:
        """User code gets stuck with its next record."""
        self._stuck = self._stuck or asyncio.Event()

    def go_on(self) -> None:
        """User code goes on."""
        if self._stuck is not None:
            self._stuck.set()
            self._stuck = None

    def calm(self) -> None:
        """Let everything be well with it: networks, user code, threads."""
        self.store.weather.clear()
        self.sources.clear()
        self.line.set_rate(self.sim.shape.link_bytes_per_second)
        self.slow_until = self.blocks_until = 0.0
        self.fails = 0
        self.go_on()
        self.machine.then = self.heart_thread.then = None

    def block(self, seconds: float) -> None:
        """User code blocks the client's event loop."""
        self.machine.after_steps(
            self.random.randrange(8), lambda: self.machine.block(seconds)
        )

    def block_each(self, seconds: float, lasts: float) -> None:
        """User code blocks the client's event loop with each record, for a time."""
        self.blocks_seconds = seconds
        self.blocks_until = self.machine.loop.real + lasts

    def leave(self) -> None:
        """SIGTERM: leave in good order."""
        self.leaving = True
        if self.group is not None:
            self._in_background(self.group.leave)

    def refresh(self, streams: tuple[str, ...]) -> None:
        """Change the streams."""
        self.streams = streams
        if self.group is not None:
            self._in_background(partial(self.group.refresh, self._asked()))

    def _asked(self) -> list[Stream]:
        pace = self.sim.shape.min_read_interval_seconds
        return [Stream(name, min_read_interval_seconds=pace) for name in self.streams]

    def _in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        self.sim.loop.spawn(self.machine, self._guard(work))

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.sim.judge.note("failed", self.name, repr(error))

    # --- its life ---

    async def _main(self) -> None:
        while not self.leaving:
            try:
                await self._consume()
            except UserError:
                self.sim.judge.note("user code failed", self.name)
            except ClientIdInUseError as error:
                self.refused = error
                self.sim.judge.note("id in use", self.name, str(error))
                self.sim.ids_in_use += 1
            except FatalError as error:
                self.ended_with = error
                if not self.sim.expects_fatal:
                    self.sim.judge.fail("fatal", f"{self.name}: {error!r}")
                return
            except Exception as error:
                self.ended_with = error
                self.sim.crashed(self, error)
                return
            if not self.leaving:
                await asyncio.sleep(5 * self.random.random())

    async def _consume(self) -> None:
        called = Called(self) if self.sim.shape.concurrency else None
        delivery = RecordDelivery(self.machine, acks_by_asking=self.sim.auto)
        group = self._new_group(delivery if called is None else called.handling)

        async def begin() -> None:
            if self.group is not group:
                self.group = group
                await group.start(self._asked(), self.sim.shape.start)

        marking: asyncio.Task[None] | None = None
        if not self.sim.auto:
            marking = asyncio.get_running_loop().create_task(self._mark(group))
        try:
            if called is not None:
                await called.handling.run(begin)
            elif self.sim.shape.batches:
                await self._each_batch_of(Records(delivery, begin))
                if self.sim.shape.tasks > 1:
                    self._mark_all(group)
            else:
                await self._each_record(Records(delivery, begin))
        finally:
            self.group = None
            if marking is not None:
                marking.cancel()
            self._in_hand.clear()
            await self._stop(group)

    def _new_group(self, taker: DeliveryProtocol) -> GroupConsumer:
        sim = self.sim
        context = ClientContext(
            app=sim.shape.app,
            client_id=self.client_id,
            config=sim.config_of(self.client_id),
            store=self.store,
            clock=self.machine,
            random=self.random,
            new_id=sim.new_id,
            failure_log=FailureLog(self.machine),
        )
        heart = SimulatedHeart(context, self.heart_thread, self.heart_store)
        return GroupConsumer(context, self._open_source, heart, taker)

    def _linked_store(self, weather: Weather | None = None) -> LinkedStore:
        return LinkedStore(
            self.machine,
            self.random,
            self.sim.store,
            self.sim.judge,
            weather,
            self.heart_thread,
        )

    async def _stop(self, group: GroupConsumer) -> None:
        try:
            await group.stop(wait_for_user=False)
        except TimeoutError as error:
            self.sim.judge.note("stopped late", self.name, str(error))

    async def _open_source(self, stream: Stream) -> LinkedSource:
        source = self.sim.kinesis.source(stream.name)
        return LinkedSource(self.machine, self.random, source, self.sources, self.line)

    # --- user code ---

    async def _each_record(self, records: Records) -> None:
        judge, machine, auto = self.sim.judge, self.machine, self.sim.auto
        async for record in records:
            judge.delivered(machine, record)
            await self.work_at([record])
            if auto:
                judge.done(record)
            else:
                self._in_hand.append(record)

    async def _each_batch_of(self, records: Records) -> None:
        """Let some tasks iterate over batches; the first failure ends them all."""
        if self.sim.shape.tasks == 1:
            await self._each_batch(records)
            return
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._each_batch(records))
            for _ in range(self.sim.shape.tasks)
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
        for task in tasks:
            if task in done:
                task.result()

    async def _each_batch(self, records: Records) -> None:
        judge, auto = self.sim.judge, self.sim.auto
        async for batch in records.batches():
            for record in batch.records:
                judge.delivered(self.machine, record)
            if self.sim.shape.tasks > 1 and not self.sim.is_calm:
                await asyncio.sleep(self.random.random())
            await self.work_at(batch.records, batch)
            if auto:
                for record in batch.records:
                    judge.done(record)
            else:
                self._in_hand += batch.records

    async def work_at(self, records: list[Record], batch: Batch | None = None) -> None:
        """Handle some records, in a way or the other. Raises UserError."""
        now = self.machine.loop.real
        if now < self.blocks_until:
            await self._block_at(len(records))
        if self.fails or self._stuck or now < self.slow_until:
            await self._misbehave()
        if (user := self.sim.user) is None:
            return
        if user.handler.takes_batches:
            await self._handle(user, batch)
        else:
            for record in records:
                await self._handle(user, record)

    async def _handle(self, user: User, item: Record | Batch | None) -> None:
        handler = user.handler
        try:
            if handler.is_async:
                await handler.call(item)
            else:
                refuse_awaitable(handler.call(item))
        except user.restarts_after as error:
            if self.sim.is_calm:
                self.sim.late_failure = error
            raise UserError from error
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # a test framework's, too
            self.sim.loop.halted = self.sim.loop.halted or error
            raise

    async def _misbehave(self) -> None:
        if self.fails:
            self.fails -= 1
            raise UserError
        if self._stuck:
            await self._stuck.wait()
        draw = self.random.random
        await asyncio.sleep(60 * draw() if draw() < 0.03 else draw())

    async def _block_at(self, count: int) -> None:
        """Block the loop with each record; nothing else runs between them."""
        loop = self.machine.loop
        for _ in range(count):
            if loop.real < self.blocks_until:
                await self.machine.busy(self.blocks_seconds * self.random.random())

    def _mark_all(self, group: GroupConsumer) -> None:
        """Finish what is in hand: nothing more comes."""
        for record in self._in_hand:
            self.sim.judge.done(record)
            group.ack(record)
        self._in_hand.clear()

    async def _mark(self, group: GroupConsumer) -> None:
        """Finish what is in hand in any order (``commit="manual"``)."""
        judge, draw = self.sim.judge, self.random
        while True:
            await asyncio.sleep(draw.random())
            for _ in range(draw.randrange(1 + 2 * len(self._in_hand))):
                if not self._in_hand:
                    break
                place = draw.randrange(len(self._in_hand))
                record = self._in_hand.pop(place)
                judge.done(record)
                group.ack(record)
            if draw.random() < 0.1:
                try:
                    await group.commit()
                except ShardsLostError as error:
                    judge.note("lost", self.name, str(error))
