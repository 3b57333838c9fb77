"""A simulated client process. It runs the real client, and user code with faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import cast

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.coordination.connections import Ports
from kinesumer.coordination.group import GroupConsumer
from kinesumer.coordination.heartbeat import Heartbeater, HeartbeatTask, MakeHeartbeater
from kinesumer.coordination.membership import Event, Notify
from kinesumer.errors import ClientIdInUseError, CommitTimeoutError, FatalError
from kinesumer.model.streams import Stream
from kinesumer.ports import StateStore, StreamSource
from kinesumer.runtime.context import ClientContext
from kinesumer.telemetry.history import History
from kinesumer.telemetry.recorded_calls import recorded
from kinesumer.testing.simulation.fan_out import (
    LinkedFanOutSource,
    Subscriptions,
    open_fan_out,
)
from kinesumer.testing.simulation.machine import MACHINE, Machine, SharedLink
from kinesumer.testing.simulation.memory_ports import memory_ports
from kinesumer.testing.simulation.network import (
    LinkedStore,
    NetworkConditions,
)
from kinesumer.testing.simulation.user_code import (
    FaultyUserCode,
    SimulatedClient,
    UserError,
    UserSide,
)
from kinesumer.testing.simulation.world import World


class SimulatedHeartbeatThread:
    """Sends heartbeats on a second thread, even while the first thread is blocked.

    As with real threads, a function that one thread calls on the other runs later.
    """

    def __init__(self, thread: Machine, task: HeartbeatTask) -> None:
        self._heartbeat = task
        self._on_thread = copy_context()
        self._on_thread.run(MACHINE.set, thread)
        self._call = partial(thread.loop.call_soon, context=self._on_thread)

    def start(self, make_heartbeater: MakeHeartbeater, notify: Notify) -> None:
        """Start the heartbeats. ``notify`` will be called on the caller's thread."""
        loop, home = asyncio.get_running_loop(), copy_context()

        def pass_on(event: Event) -> None:
            loop.call_soon(notify, event, context=home)

        self._on_thread.run(self._heartbeat.start, make_heartbeater, pass_on)

    def call_in_loop(self, change: Callable[[Heartbeater], None]) -> None:
        """Call a function with the heartbeater, on the heartbeat thread."""
        self._call(self._heartbeat.call_in_loop, change)

    async def stop(self) -> None:
        """Stop the heartbeats. No heartbeat is sent after this method returns."""
        if (task := self._heartbeat.task) is not None:
            self._call(task.cancel)
            await asyncio.wait([task])


def on_thread(thread: Machine, task: HeartbeatTask) -> HeartbeatTask:
    """Return a heartbeat that runs on a second thread of a process."""
    return cast("HeartbeatTask", SimulatedHeartbeatThread(thread, task))


class Process:
    """A client process that consumes streams until it leaves the group or is killed."""

    is_member: bool = True  # False if it isn't a client of the app
    kcl_table: str | None = None

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
        self.machines = (self.machine, self.heartbeat_thread)
        link = self.machine, self.random, NetworkConditions()
        self.store: LinkedStore = LinkedStore(
            *link, world.store, world.checker, self.heartbeat_thread
        )
        self.history: History | None = world.new_history(client_id)
        self.recorded: StateStore = recorded(self.store, self.history)
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
        self.client: SimulatedClient | None = None  # set while it consumes
        self.ended_with: BaseException | None = None
        self.refused: ClientIdInUseError | None = None
        self.task: asyncio.Task[None] = world.loop.spawn(self.machine, self._main())

    @property
    def alive(self) -> bool:
        """True while the process runs or is frozen."""
        return self.machine.alive and not self.task.done()

    @property
    def stays(self) -> bool:
        """False once the process leaves, or will be killed after some callbacks."""
        killed = any(t.after_steps_action == self.machine.kill for t in self.machines)
        return not self.leaving and not killed

    @property
    def group(self) -> GroupConsumer | None:
        """The group of the process's client, or None."""
        return None if self.client is None else self.client.group

    def owned_shards(self) -> Iterable[OwnedShard]:
        """Return the shards that the process owns now."""
        return () if self.client is None else self.client.owned_shards()

    # --- what happens to it ---

    def kill(self) -> None:
        """Kill the process (SIGKILL) after one thread has run a few more callbacks."""
        self._at_some_step(self.machine.kill)

    def freeze(self, seconds: float, *, suspend: bool = False) -> None:
        """Freeze the process (SIGSTOP) after one thread has run a few callbacks."""
        self._at_some_step(partial(self.machine.freeze, seconds, suspend=suspend))

    def _at_some_step(self, act: Callable[[], None]) -> None:
        thread = self.random.choice(self.machines)
        thread.after_steps(self.random.randrange(8), act)

    def set_wall_clock(self, seconds: float) -> None:
        """Set the computer's wall clock forward or back."""
        for thread in self.machines:
            thread.wall_offset += seconds

    def set_clock_rate(self, rate: float) -> None:
        """Let the computer's clocks run faster or slower."""
        for thread in self.machines:
            thread.set_rate(rate)

    def end_faults(self) -> None:
        """End all faults of the process's networks, user code, and threads."""
        for network in self.networks.values():
            network.clear()
        self.line.set_rate(self.world.scenario.link_bytes_per_second)
        self.subscriptions.end_faults()
        self.user_code.end_faults()
        for thread in self.machines:
            thread.after_steps_action = None

    def block(self, seconds: float) -> None:
        """Block the client's event loop for a time, as user code may do."""
        block = partial(self.machine.block, seconds)
        self.machine.after_steps(self.random.randrange(8), block)

    def leave(self) -> None:
        """Leave the group (SIGTERM)."""
        self.leaving = True
        if self.client is not None:
            self._in_background(self.client.leave)

    def refresh(self, streams: tuple[str, ...]) -> None:
        """Change the streams that the process consumes."""
        self.streams = streams
        if self.client is not None:
            self._in_background(partial(self._refresh, self.client))

    async def _refresh(self, client: SimulatedClient) -> None:
        while client is self.client and client.group is None:
            await asyncio.sleep(0.1)  # consume() was called, but hasn't begun to start
        if client is self.client:
            await client.refresh(self.requested_streams())

    def requested_streams(self) -> list[Stream]:
        """Return the streams that the process consumes."""
        return [
            Stream(
                name,
                min_read_interval_seconds=self.world.scenario.min_read_interval_seconds,
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
            except CommitTimeoutError as error:
                self.world.checker.note("stopped late", self.name, str(error))
            except FatalError as error:
                may_end = self.world.was_deregistered and type(error) is FatalError
                if not may_end or all(self.fan_out.values()):
                    self.ended_with = error
                    self.world.checker.fail("fatal", f"{self.name}: {error!r}")
                    return
                self.world.checker.note("ended", self.name, str(error))
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
        self._draw_fan_out()
        client = self._new_client()
        async with client:
            self.client = client
            self.world.checker.turns.begin(self.machine, self.owned_shards)
            try:
                streams = self.requested_streams()
                await UserSide(client, self.user_code).consume(streams)
            finally:
                self.client = None

    def _new_client(self) -> SimulatedClient:
        """Return a client over the simulated ports. Another version has its own."""
        return SimulatedClient(
            self.world.scenario.app,
            client_id=self.client_id,
            config=self.world.config_of(self.client_id),
            kcl_table=self.kcl_table,
            _ports=self._ports(),
        )

    def _ports(self) -> Ports:
        return memory_ports(
            self.machine,
            self.random,
            self.world.new_id,
            self.recorded,
            self._open_source,
            heartbeat=self._new_heartbeat,
            history=self.history,
        )

    def _new_heartbeat(self, context: ClientContext) -> HeartbeatTask:
        context = replace(context, store=self.recorded)
        return on_thread(self.heartbeat_thread, HeartbeatTask(context))

    async def _open_source(self, stream: Stream) -> StreamSource:
        link = (self.machine, self.random, self.kinesis_network)
        place = (self.world.kinesis, stream.name, self.line)
        if stream.fan_out is None:
            return self.world.source(*link, stream.name, self.line)
        source = LinkedFanOutSource(*link, *place, self.subscriptions)
        return await open_fan_out(source, stream)
