"""A simulated client process. It runs the real engine, and user code with faults."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kinesumer.consuming.delivery import RecordDelivery
from kinesumer.consuming.records import Batches, Records
from kinesumer.coordination.group import GroupConsumer
from kinesumer.errors import ClientIdInUseError, FatalError, ShardsLostError
from kinesumer.model.streams import Stream
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.failure_log import FailureLog
from kinesumer.runtime.incidents import IncidentLog
from kinesumer.testing.simulation.bandwidth import SharedLink
from kinesumer.testing.simulation.fan_out import (
    LinkedFanOutSource,
    Subscriptions,
    open_fan_out,
)
from kinesumer.testing.simulation.heartbeat_thread import SimulatedHeartbeatThread
from kinesumer.testing.simulation.network import (
    LinkedSource,
    LinkedStore,
    NetworkConditions,
)
from kinesumer.testing.simulation.user_code import (
    FaultyUserCode,
    HandlerClient,
    SimulatedCallbacks,
    UserError,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kinesumer.consuming.delivery_protocol import DeliveryProtocol
    from kinesumer.model.owned import AssignedShard
    from kinesumer.model.records import Batch, Record
    from kinesumer.ports import StreamSource
    from kinesumer.testing.simulation.machine import Machine
    from kinesumer.testing.simulation.world import World


class Process:
    """A client process that consumes streams until it leaves the group or is killed."""

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
        self.name: str = client_id
        self.streams: tuple[str, ...] = streams
        self.random: random.Random = world.random_for(f"process {number}")
        self.machine: Machine = world.loop.machine(client_id, rate)
        self.heartbeat_thread: Machine = self.machine.thread("heart")
        # Both are links to the state store. The heartbeat thread waits for all answers.
        self.store: LinkedStore = self._linked_store()
        self.heartbeat_store: LinkedStore = self._linked_store(self.store.network)
        self.kinesis_network: NetworkConditions = NetworkConditions()
        if not world.faults_ended:
            self.kinesis_network.set(skew=world.scenario.skew_seconds)
        self.networks: dict[str, NetworkConditions] = {
            "store": self.store.network,
            "kinesis": self.kinesis_network,
        }
        self.line: SharedLink = SharedLink(
            world.loop, world.scenario.link_bytes_per_second
        )
        self.subscriptions: Subscriptions = Subscriptions()
        # The streams that the process reads by fan-out, and whether it may fall back.
        self.fan_out: dict[str, bool] = {}
        self._fan_out_random = world.random_for(f"fan-out of process {number}")
        self.user_code: FaultyUserCode = FaultyUserCode(
            world, self.machine, self.random
        )
        self.leaving: bool = False
        self.group: GroupConsumer | None = None
        self._has_started = False  # a client refreshes only after its start
        self.ended_with: BaseException | None = None
        self.refused: ClientIdInUseError | None = None
        self._unacked: list[Record] = []
        self.task: asyncio.Task[None] = world.loop.spawn(self.machine, self._main())

    @property
    def alive(self) -> bool:
        """True while the process runs or is frozen."""
        return self.machine.alive and not self.task.done()

    # --- what happens to it ---

    def kill(self) -> None:
        """Kill the process (SIGKILL) after one thread has run a few more callbacks."""
        self._at_some_step(self.machine.kill)

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Freeze the process (SIGSTOP) after one thread has run a few callbacks."""
        self._at_some_step(partial(self.machine.freeze, seconds, suspend=suspend))

    def _at_some_step(self, act: Callable[[], None]) -> None:
        thread = self.random.choice((self.machine, self.heartbeat_thread))
        thread.after_steps(self.random.randrange(8), act)

    def set_wall_clock(self, seconds: float) -> None:
        """Set the computer's wall clock forward or back."""
        for machine in (self.machine, self.heartbeat_thread):
            machine.wall_offset += seconds

    def set_clock_rate(self, rate: float) -> None:
        """Let the computer's clocks run faster or slower."""
        for machine in (self.machine, self.heartbeat_thread):
            machine.set_rate(rate)

    def end_faults(self) -> None:
        """End all faults of the process's networks, user code, and threads."""
        self.store.network.clear()
        self.kinesis_network.clear()
        self.line.set_rate(self.world.scenario.link_bytes_per_second)
        self.subscriptions.end_faults()
        self.user_code.end_faults()
        for thread in (self.machine, self.heartbeat_thread):
            thread.after_steps_action = None

    def block(self, seconds: float) -> None:
        """Block the client's event loop for a time, as user code may do."""
        block = partial(self.machine.block, seconds)
        self.machine.after_steps(self.random.randrange(8), block)

    def leave(self) -> None:
        """Leave the group (SIGTERM)."""
        self.leaving = True
        if self.group is not None:
            self._in_background(self.group.leave)

    def refresh(self, streams: tuple[str, ...]) -> None:
        """Change the streams that the process consumes."""
        self.streams = streams
        if self.group is not None and self._has_started:
            self._in_background(partial(self.group.refresh, self._requested_streams()))

    def _requested_streams(self) -> list[Stream]:
        pace = self.world.scenario.min_read_interval_seconds
        return [
            Stream(
                name,
                min_read_interval_seconds=pace,
                fan_out=self.world.scenario.app if name in self.fan_out else None,
                fan_out_fallback=self.fan_out.get(name, False),
            )
            for name in self.streams
        ]

    def _draw_fan_out(self) -> None:
        """Draw the streams to read by fan-out. A restart may change them."""
        draw, share = self._fan_out_random.random, self.world.scenario.fan_out
        chosen = [name for name in self.world.streams if draw() < share]
        self.fan_out = {name: draw() < 0.5 for name in chosen}

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
                must_poll = all(self.fan_out.values())
                deregistered = self.world.was_deregistered and not must_poll
                if deregistered and type(error) is FatalError:
                    self.world.checker.note("ended", self.name, str(error))
                else:
                    self.ended_with = error
                    if not self.world.expects_fatal:
                        self.world.checker.fail("fatal", f"{self.name}: {error!r}")
                    return
            except Exception as error:
                self.ended_with = error
                self.world.report_crash(self.name, error)
                return
            if self.world.scenario.callbacks:
                await asyncio.sleep(0.001)  # cancelled calls end
                self.world.checker.calls.stopped(self.machine)
            if not self.leaving:
                # A supervisor starts a failed process again some seconds later.
                await asyncio.sleep(5 * self.random.random())

    async def _consume(self) -> None:
        world, handling = self.world, None
        self._draw_fan_out()
        if world.scenario.concurrency:
            client = HandlerClient(world, self.user_code, self.machine, self.random)
            handling = client.handling
        delivery = RecordDelivery(self.machine, acks_by_asking=world.auto)
        callbacks: SimulatedCallbacks | None = None
        if world.scenario.callbacks:
            callbacks = SimulatedCallbacks(
                self.machine, world.checker.calls, self.user_code, self._ack_shard
            )
        (handling or delivery).callbacks = callbacks
        group = self._new_group(handling or delivery)
        world.checker.turns.begin(self.machine, group.owned_shards)

        async def begin() -> None:
            if self.group is not group:
                self.group, streams = group, self.streams
                await group.start(self._requested_streams(), world.scenario.start)
                self._has_started = True
                if self.streams != streams:
                    self.refresh(self.streams)

        loop = asyncio.get_running_loop()
        acking = None if world.auto else loop.create_task(self._ack(group))
        try:
            if handling is not None:
                await handling.run(begin)
            elif world.scenario.batches:
                await self._each_batch_of(Records(delivery, begin))
                if world.scenario.tasks > 1:
                    self._ack_all(group)
            else:
                await self._each_record(Records(delivery, begin))
        finally:
            self.group, self._has_started = None, False
            if acking is not None:
                acking.cancel()
            self._unacked.clear()
            try:
                await group.stop(wait_for_user=False)
            except TimeoutError as error:
                world.checker.note("stopped late", self.name, str(error))
        if callbacks is not None:
            callbacks.raise_error()

    def _new_group(self, delivery: DeliveryProtocol) -> GroupConsumer:
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
            incidents=IncidentLog(self.machine),
        )
        heartbeat = SimulatedHeartbeatThread(
            replace(context, store=self.heartbeat_store), self.heartbeat_thread
        )
        return GroupConsumer(context, self._open_source, heartbeat, delivery)

    def _linked_store(self, network: NetworkConditions | None = None) -> LinkedStore:
        return LinkedStore(
            self.machine,
            self.random,
            self.world.store,
            self.world.checker,
            network,
            self.heartbeat_thread,
        )

    async def _open_source(self, stream: Stream) -> StreamSource:
        source = self.world.kinesis.source(stream.name)
        link = (self.machine, self.random, source, self.kinesis_network, self.line)
        if stream.fan_out is None:
            return LinkedSource(*link)
        return await open_fan_out(LinkedFanOutSource(*link, self.subscriptions), stream)

    # --- user code ---

    async def _each_record(self, records: Records) -> None:
        async for record in records:
            await self._handle([record])

    async def _each_batch_of(self, records: Records) -> None:
        """Iterate over batches in several tasks; the first failure ends all of them."""
        count, loop = self.world.scenario.tasks, asyncio.get_running_loop()
        if count == 1:
            await self._each_batch(records.batches())
            return
        shared = records.batches() if self.random.random() < 0.5 else None
        works = [self._each_batch(shared or records.batches()) for _ in range(count)]
        tasks = [loop.create_task(work) for work in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _each_batch(self, batches: Batches) -> None:
        async for batch in batches:
            await self._handle(batch.records, batch)

    async def _handle(self, records: list[Record], batch: Batch | None = None) -> None:
        world = self.world
        for record in records:
            world.checker.delivered(self.machine, record)
        world.checker.calls.busy(self.machine, records[0].fence, 1)
        try:
            # Wait, so that other tasks take batches, and some are done out of order.
            if world.scenario.tasks > 1 and not world.faults_ended:
                await asyncio.sleep(self.random.random())
            await self.user_code.run(records, batch)
        finally:
            world.checker.calls.busy(self.machine, records[0].fence, -1)
        if world.auto:
            for record in records:
                world.checker.done(record)
        else:
            self._unacked += records

    def _ack_all(self, group: GroupConsumer) -> None:
        """Ack all records that haven't been acked yet."""
        while self._unacked:
            self._ack_at(0, group)

    def _ack_at(self, index: int, group: GroupConsumer) -> None:
        record = self._unacked.pop(index)
        self.world.checker.done(record)
        group.ack(record)

    def _ack_shard(self, shard: AssignedShard) -> None:
        """Ack the records of a shard that is revoked, at random."""
        if self.group is None or self.random.random() < 0.5:
            return
        for index in reversed(range(len(self._unacked))):
            if self._unacked[index].fence[:2] == shard.fence[:2]:
                self._ack_at(index, self.group)

    async def _ack(self, group: GroupConsumer) -> None:
        """Ack records in random order, as ``commit="manual"`` allows."""
        draw = self.random
        while True:
            await asyncio.sleep(draw.random())
            for _ in range(draw.randrange(1 + 2 * len(self._unacked))):
                if not self._unacked:
                    break
                self._ack_at(draw.randrange(len(self._unacked)), group)
            if draw.random() < 0.1:
                try:
                    await group.commit()
                except ShardsLostError as error:
                    self.world.checker.note("lost", self.name, str(error))
