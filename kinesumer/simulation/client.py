"""A simulated client process: the real engine, and user code with faults."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Records
from kinesumer.coordination.group import GroupConsumer
from kinesumer.errors import ClientIdInUseError, FatalError, ShardsLostError
from kinesumer.model.streams import Stream
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.simulation.bandwidth import SharedLink
from kinesumer.simulation.heartbeat import SimulatedHeartbeatThread
from kinesumer.simulation.network import LinkedSource, LinkedStore, NetworkConditions
from kinesumer.simulation.user_code import FaultyUserCode, HandlerClient, UserError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from kinesumer.consuming.delivery_protocol import DeliveryProtocol
    from kinesumer.model.records import Record
    from kinesumer.simulation.world import World


class Process:
    """A process that consumes until it leaves or is killed."""

    def __init__(
        self,
        world: World,
        client_id: str,
        streams: tuple[str, ...],
        rate: float,
        number: int,
    ) -> None:
        self.world = world
        self.client_id = client_id
        self.streams = streams
        self.random: Random = world.random_for(f"process {number}")
        self.machine = world.loop.machine(client_id, rate)
        self.heartbeat_thread = self.machine.thread("heart")
        self.store = self._linked_store()
        """Its calls run on the heartbeat thread."""
        self.kinesis_network = NetworkConditions()
        if not world.faults_ended:
            self.kinesis_network.set(skew=world.scenario.skew_seconds)
        self.line = SharedLink(world.loop, world.scenario.link_bytes_per_second)
        self.heartbeat_store = self._linked_store(self.store.network)
        self.user_code = FaultyUserCode(world, self.machine, self.random)
        self.leaving = False
        self.group: GroupConsumer | None = None
        self.ended_with: BaseException | None = None
        self.refused: ClientIdInUseError | None = None
        self._unacked: list[Record] = []
        self.task = world.loop.spawn(self.machine, self._main())

    @property
    def alive(self) -> bool:
        """Whether it runs or is frozen."""
        return self.machine.alive and not self.task.done()

    @property
    def name(self) -> str:
        """The client id."""
        return self.client_id

    # --- what happens to it ---

    def kill(self) -> None:
        """Kill the process (SIGKILL) after a few more callbacks of one thread."""
        thread = self.random.choice((self.machine, self.heartbeat_thread))
        thread.after_steps(self.random.randrange(8), self.machine.kill)

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Stop the process (SIGSTOP) after a few more callbacks of one thread."""
        thread = self.random.choice((self.machine, self.heartbeat_thread))
        thread.after_steps(
            self.random.randrange(8),
            lambda: self.machine.freeze(seconds, suspend=suspend),
        )

    def set_wall_clock(self, seconds: float) -> None:
        """Set the computer's wall clock forward or back."""
        for machine in (self.machine, self.heartbeat_thread):
            machine.wall_offset += seconds

    def set_clock_rate(self, rate: float) -> None:
        """Let the computer's clocks run faster or slower."""
        for machine in (self.machine, self.heartbeat_thread):
            machine.set_rate(rate)

    def end_faults(self) -> None:
        """End the faults of its networks, user code, and threads."""
        self.store.network.clear()
        self.kinesis_network.clear()
        self.line.set_rate(self.world.scenario.link_bytes_per_second)
        self.user_code.end_faults()
        self.machine.after_steps_action = self.heartbeat_thread.after_steps_action = (
            None
        )

    def block(self, seconds: float) -> None:
        """Block the client's event loop, as user code may do."""
        self.machine.after_steps(
            self.random.randrange(8), lambda: self.machine.block(seconds)
        )

    def leave(self) -> None:
        """Leave the group (SIGTERM)."""
        self.leaving = True
        if self.group is not None:
            self._in_background(self.group.leave)

    def refresh(self, streams: tuple[str, ...]) -> None:
        """Change the streams."""
        self.streams = streams
        if self.group is not None:
            self._in_background(partial(self.group.refresh, self._requested_streams()))

    def _requested_streams(self) -> list[Stream]:
        pace = self.world.scenario.min_read_interval_seconds
        return [Stream(name, min_read_interval_seconds=pace) for name in self.streams]

    def _in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        self.world.loop.spawn(self.machine, self._guard(work))

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.world.checker.note("failed", self.name, repr(error))

    # --- its life ---

    async def _main(self) -> None:
        while not self.leaving:
            try:
                await self._consume()
            except UserError:
                self.world.checker.note("user code failed", self.name)
            except ClientIdInUseError as error:
                self.refused = error
                self.world.checker.note("id in use", self.name, str(error))
                self.world.ids_in_use += 1
            except FatalError as error:
                self.ended_with = error
                if not self.world.expects_fatal:
                    self.world.checker.fail("fatal", f"{self.name}: {error!r}")
                return
            except Exception as error:
                self.ended_with = error
                self.world.report_crash(self.name, error)
                return
            if not self.leaving:
                await asyncio.sleep(5 * self.random.random())

    async def _consume(self) -> None:
        called = (
            HandlerClient(self.world, self.user_code, self.machine, self.random)
            if self.world.scenario.concurrency
            else None
        )
        delivery = RecordDelivery(self.machine, acks_by_asking=self.world.auto)
        group = self._new_group(delivery if called is None else called.handling)

        async def begin() -> None:
            if self.group is not group:
                self.group = group
                await group.start(self._requested_streams(), self.world.scenario.start)

        marking: asyncio.Task[None] | None = None
        if not self.world.auto:
            marking = asyncio.get_running_loop().create_task(self._mark(group))
        try:
            if called is not None:
                await called.handling.run(begin)
            elif self.world.scenario.batches:
                await self._each_batch_of(Records(delivery, begin))
                if self.world.scenario.tasks > 1:
                    self._mark_all(group)
            else:
                await self._each_record(Records(delivery, begin))
        finally:
            self.group = None
            if marking is not None:
                marking.cancel()
            self._unacked.clear()
            await self._stop(group)

    def _new_group(self, taker: DeliveryProtocol) -> GroupConsumer:
        world = self.world
        context = ClientContext(
            app=world.scenario.app,
            client_id=self.client_id,
            config=world.config_of(self.client_id),
            store=self.store,
            clock=self.machine,
            random=self.random,
            new_id=world.new_id,
            failure_log=FailureLog(self.machine),
        )
        heart = SimulatedHeartbeatThread(
            context, self.heartbeat_thread, self.heartbeat_store
        )
        return GroupConsumer(context, self._open_source, heart, taker)

    def _linked_store(self, network: NetworkConditions | None = None) -> LinkedStore:
        return LinkedStore(
            self.machine,
            self.random,
            self.world.store,
            self.world.checker,
            network,
            self.heartbeat_thread,
        )

    async def _stop(self, group: GroupConsumer) -> None:
        try:
            await group.stop(wait_for_user=False)
        except TimeoutError as error:
            self.world.checker.note("stopped late", self.name, str(error))

    async def _open_source(self, stream: Stream) -> LinkedSource:
        source = self.world.kinesis.source(stream.name)
        return LinkedSource(
            self.machine, self.random, source, self.kinesis_network, self.line
        )

    # --- user code ---

    async def _each_record(self, records: Records) -> None:
        checker, machine, auto = self.world.checker, self.machine, self.world.auto
        async for record in records:
            checker.delivered(machine, record)
            await self.user_code.run([record])
            if auto:
                checker.done(record)
            else:
                self._unacked.append(record)

    async def _each_batch_of(self, records: Records) -> None:
        """Iterate over batches in several tasks; the first failure ends all of them."""
        if self.world.scenario.tasks == 1:
            await self._each_batch(records)
            return
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._each_batch(records))
            for _ in range(self.world.scenario.tasks)
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
        checker, auto = self.world.checker, self.world.auto
        async for batch in records.batches():
            for record in batch.records:
                checker.delivered(self.machine, record)
            if self.world.scenario.tasks > 1 and not self.world.faults_ended:
                await asyncio.sleep(self.random.random())
            await self.user_code.run(batch.records, batch)
            if auto:
                for record in batch.records:
                    checker.done(record)
            else:
                self._unacked += batch.records

    def _mark_all(self, group: GroupConsumer) -> None:
        """Ack all records that are left."""
        for record in self._unacked:
            self.world.checker.done(record)
            group.ack(record)
        self._unacked.clear()

    async def _mark(self, group: GroupConsumer) -> None:
        """Ack records in any order (``commit="manual"``)."""
        checker, draw = self.world.checker, self.random
        while True:
            await asyncio.sleep(draw.random())
            for _ in range(draw.randrange(1 + 2 * len(self._unacked))):
                if not self._unacked:
                    break
                place = draw.randrange(len(self._unacked))
                record = self._unacked.pop(place)
                checker.done(record)
                group.ack(record)
            if draw.random() < 0.1:
                try:
                    await group.commit()
                except ShardsLostError as error:
                    checker.note("lost", self.name, str(error))
