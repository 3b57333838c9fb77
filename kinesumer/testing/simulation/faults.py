"""Faults of processes, networks, Kinesis, user code, and operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from kinesumer.config import Config
from kinesumer.coordination import pauses
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.ops.group import changes
from kinesumer.testing.kinesis.streams import Stream
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.invariants.base import WHOLE
from kinesumer.testing.simulation.scenarios import Scenario
from kinesumer.testing.simulation.simulation import Operator, Simulation, Work

Inject = Callable[["FaultInjector", float], None]

MAX_OPEN_SHARDS = 24
# The range of a narrow link's bandwidth. Even the lowest carries 10 MB within 30 s.
NARROW_BYTES_PER_SECOND = (600_000, 2_000_000)
# A longer block could outlast the client's lease.
MAX_BLOCKED_SECONDS = Config().lease_duration_seconds
SKEW_SECONDS = 0.5


def _network_fault(*services: str, of_all: bool = False, **rates: float) -> Inject:
    """Return a fault of the links from one process, or from all, to some services."""

    def inject(self: FaultInjector, seconds: float) -> None:
        processes = self.sim.living if of_all else filter(None, [self._victim()])
        for process in processes:
            for service in services:
                process.networks[service].set(**rates)
                self._later(seconds, process.networks[service].clear, *rates)

    return inject


def _process_fault(act: Callable[[Process, float], None]) -> Inject:
    """Return a fault that affects one process for some seconds."""

    def inject(self: FaultInjector, seconds: float) -> None:
        if victim := self._victim():
            act(victim, seconds)

    return inject


class FaultInjector:
    """Injects one fault, with random numbers that don't depend on other faults."""

    def __init__(self, sim: Simulation, draw: int) -> None:
        self.sim = sim
        self.random: Random = Random(draw)

    def _victim(self) -> Process | None:
        living = self.sim.living
        return self.random.choice(living) if living else None

    def _stream(self) -> Stream:
        return self.sim.kinesis.stream(self.random.choice(self.sim.streams))

    def _later(self, seconds: float, what: Callable[..., Any], *args: Any) -> None:
        def then() -> None:
            if not self.sim.faults_ended:
                what(*args)

        self.sim.loop.at_real(self.sim.loop.real + seconds, then)

    def _restart(self, process: Process) -> None:
        keeps_id = self.sim.scenario.static_ids or self.random.random() < 0.5
        client_id = process.client_id if keeps_id else None
        if all(other.client_id != client_id for other in self.sim.living):
            self.sim.start_process(client_id, process.streams)

    # --- processes ---

    def crash(self, seconds: float) -> None:
        """Kill a process and later start another, with the same id or a new one.

        Half of the time, kill the process with the lowest id: it is often the leader.
        """
        if victim := self._victim():
            if self.random.random() < 0.5:
                victim = min(self.sim.living, key=lambda process: process.client_id)
            victim.kill()
            self._later(seconds / 2 + 0.01, self._restart, victim)

    # A process is stopped (SIGSTOP), possibly between any two of its steps.
    stall: Inject = _process_fault(lambda victim, seconds: victim.freeze(seconds))
    # A computer is suspended: its timers stop, but its clock continues to run.
    suspend: Inject = _process_fault(lambda victim, s: victim.freeze(s, suspend=True))

    def jump(self, _seconds: float) -> None:
        """Set a computer's wall clock one hour forward or back."""
        if victim := self._victim():
            victim.set_wall_clock(self.random.choice((-3600, 3600)))

    def drift(self, seconds: float) -> None:
        """Let a computer's clocks run up to 5 % faster or slower."""
        if victim := self._victim():
            before = victim.machine.rate
            victim.set_clock_rate(1 + Scenario.drift * (2 * self.random.random() - 1))
            self._later(seconds, victim.set_clock_rate, before)

    def leader_flap(self, seconds: float) -> None:
        """Stop the leader several times, each time for about the length of a lease.

        When the leader continues, it believes that it still leads.
        """
        if victim := self.sim.leader:
            victim.freeze(6 + 6 * self.random.random())
        if seconds > 12:
            self._later(12, self.leader_flap, seconds - 12)

    def leave(self, seconds: float) -> None:
        """Let a process leave, and later start another."""
        if victim := self._victim():
            victim.leave()
            self._later(seconds, self._restart, victim)

    def join(self, seconds: float) -> None:
        """Start one more process, which leaves later."""
        if len(self.sim.living) < 2 * self.sim.scenario.members:
            self._later(seconds + 1, self.sim.start_process().leave)

    def deploy(self, _seconds: float) -> None:
        """Replace each process in turn by a new one, perhaps with other streams.

        In a group of two versions, the new processes may run another version.
        """
        self.sim.choose_version()
        for index, process in enumerate(self.sim.living):
            self._later(3 * index, process.leave)
            self._later(3 * index + 4 * self.random.random(), self._start_next)

    def _start_next(self) -> None:
        streams = self.sim.some_streams(self.random)
        if len(self.sim.living) < 2 * self.sim.scenario.members:
            self.sim.start_process(None, streams)

    def refresh(self, _seconds: float) -> None:
        """Change the streams of one process."""
        if victim := self._victim():
            victim.refresh(self.sim.some_streams(self.random))

    # --- networks ---

    store_cut: Inject = _network_fault("store", lost=1.0)
    # Requests are applied, but their answers are lost.
    store_mute: Inject = _network_fault("store", unanswered=1.0)
    kinesis_cut: Inject = _network_fault("kinesis", lost=1.0)
    kinesis_mute: Inject = _network_fault("kinesis", unanswered=1.0)
    both_cut: Inject = _network_fault("store", "kinesis", lost=1.0)
    store_down: Inject = _network_fault("store", of_all=True, lost=1.0)

    def throttle(self, seconds: float) -> None:
        """Throttle store requests of all processes, and Kinesis requests of one."""
        _network_fault("kinesis", throttled=0.5)(self, seconds)
        rate = self.random.random()
        _network_fault("store", of_all=True, throttled=rate)(self, seconds)

    # Half of the requests get status 500; a third of them are lost.
    errors: Inject = _network_fault("store", "kinesis", failing=0.5)
    timeouts: Inject = _network_fault("store", "kinesis", lost=0.33)
    unanswered: Inject = _network_fault("store", unanswered=0.5)

    def flaky(self, seconds: float) -> None:
        """Lose, delay and repeat a process's store requests, and lose answers."""
        latency = 0.2 * self.random.random()
        _network_fault(
            "store", latency=latency, lost=0.1, unanswered=0.15, late=0.15, twice=0.2
        )(self, seconds)

    late: Inject = _network_fault("store", late=0.7)
    twice: Inject = _network_fault("store", twice=1.0)

    def edge(self, seconds: float) -> None:
        """Freeze a process for about a lease's length; delay others' store requests."""
        if victim := self._victim():
            victim.freeze(6 + 8 * self.random.random())
        for process in self.sim.living:
            if process is not victim:
                process.store.network.set(late=0.5, twice=0.3)
                self._later(seconds, process.store.network.clear, "late", "twice")

    def slow_net(self, seconds: float) -> None:
        """Let the state store take up to some seconds to answer a process."""
        _network_fault("store", latency=3 * self.random.random())(self, seconds)

    stale: Inject = _network_fault("store", of_all=True, stale=0.7)

    # --- credentials ---

    no_keys: Inject = _network_fault("store", "kinesis", refused=1.0)
    no_keys_of_all: Inject = _network_fault(
        "store", "kinesis", of_all=True, refused=1.0
    )

    # --- Kinesis ---

    iterators: Inject = _network_fault("kinesis", of_all=True, expired=0.1, coarse=0.5)
    short_pages: Inject = _network_fault("kinesis", of_all=True, short=0.5)
    listing: Inject = _network_fault("kinesis", of_all=True, cut_off=0.5)
    # Pages and events lack an iterator, a continuation and children.
    no_iterator: Inject = _network_fault("kinesis", of_all=True, no_iterator=0.3)

    def split(self, _seconds: float) -> None:
        """Split a shard."""
        stream = self._stream()
        if len(stream.open) < max(MAX_OPEN_SHARDS, 2 * max(self.sim.scenario.shards)):
            shard = self.random.choice(stream.open).shard
            if shard.first_hash + 2 < shard.last_hash:
                self.sim.split(stream.name, shard.shard_id)

    def merge(self, _seconds: float) -> None:
        """Merge two adjacent shards."""
        stream = self._stream()
        if len(stream.open) > 1 and stream.name not in self.sim.tables:
            index = self.random.randrange(len(stream.open) - 1)
            low, high = stream.open[index : index + 2]
            self.sim.merge(stream.name, low.shard_id, high.shard_id)

    def chain(self, seconds: float) -> None:
        """Split and merge shards several times, perhaps with a crash in between."""
        for index in range(self.random.randrange(2, 6)):
            at = index * self.random.random() * 3
            self._later(at, self.random.choice((self.split, self.merge)), seconds)
        if self.random.random() < 0.5:
            self._later(3 * self.random.random(), self.crash, seconds)

    def expire(self, _seconds: float) -> None:
        """Expire all but a stream's newest records, and shards closed before those.

        Clients rely on the retention, so no record expires before it.
        """
        name = self.random.choice(self.sim.streams)
        seconds = 5 + 60 * self.random.random()
        self.sim.expire(name, max(seconds, self.sim.scenario.retention_seconds))

    # --- user code ---

    def slow(self, seconds: float) -> None:
        """Let user code take up to a second per call, and sometimes up to a minute."""
        if victim := self._victim():
            victim.user_code.slow_until = self.sim.loop.real + seconds

    # User code blocks the event loop, but not the heartbeat thread.
    block: Inject = _process_fault(lambda victim, seconds: victim.block(seconds))

    def fail(self, _seconds: float) -> None:
        """Let the next one to three calls of user code raise."""
        if victim := self._victim():
            victim.user_code.failures_left = self.random.randrange(1, 4)

    def hang(self, seconds: float) -> None:
        """Let a call of user code hang for a time."""
        if victim := self._victim():
            victim.user_code.hang()
            self._later(seconds, victim.user_code.unhang)

    # --- operators ---

    def pause(self, seconds: float) -> None:
        """Pause a shard, a stream or everything, and resume it later."""
        target = self._target()
        start = self._start_operator
        start("pause", lambda o: pauses.pause(o.context, *target, "trial"))
        resume = partial(start, "resume", lambda o: pauses.resume(o.context, *target))
        self._later(seconds, resume)

    def resume(self, _seconds: float) -> None:
        """Resume everything that is paused."""
        self._start_operator("resume", Operator.resume)

    def _target(self) -> tuple[str | None, str | None]:
        if self.random.random() < 0.2:
            return None, None
        name = self.random.choice(self.sim.streams)
        return name, None if self.random.random() < 0.3 else self._shard(name)

    def _shard(self, name: str) -> str:
        """Return an open shard, or sometimes a closed one."""
        stream = self.sim.kinesis.stream(name)
        if self.random.random() < 0.3:
            return self.random.choice(list(stream.shards))
        return self.random.choice(stream.open).shard.shard_id

    def drain(self, seconds: float) -> None:
        """Drain a client, sometimes even the only one, and undo that later."""
        if victim := self._victim():
            self._drain(victim.client_id, even_last=self.random.random() < 0.2)
            self._later(seconds, partial(self._drain, victim.client_id, undo=True))

    def undrain(self, _seconds: float) -> None:
        """Undo all drains."""
        self._start_operator("undrain", Operator.undrain)

    def _drain(self, client_id: str, **options: bool) -> None:
        what = "undo" if "undo" in options else "drain"
        self._start_operator(
            f"{what} {client_id}",
            lambda o: changes.drain(o.context, client_id, **options),
        )

    def seek(self, _seconds: float) -> None:
        """Seek a stream or one of its shards."""
        name = self.random.choice(self.sim.streams)
        shard_id = self._shard(name) if self.random.random() < 0.6 else None
        to = self._draw_position(name, shard_id)
        self._start_operator(f"seek {to}", lambda o: o.seek(name, to, shard_id))

    def _draw_position(self, name: str, shard_id: str | None) -> Position | Start:
        if shard_id is not None and self.random.random() < 0.5:
            log = self.sim.checker.shards[self.sim.arn(name), shard_id].log
            if log:
                _, number, part = self.random.choice(log)
                return Position(number, None if part == WHOLE else part)
        ago = 120 * self.random.random()
        timestamp = max(0.0, self.sim.kinesis.clock.wall() - ago)
        at_timestamp = Start(type="AT_TIMESTAMP", timestamp=timestamp)
        return self.random.choice((Start.LATEST, Start.TRIM_HORIZON, at_timestamp))

    def _start_operator(self, what: str, work: Work) -> None:
        """Start an operator's command, and sometimes kill, stop or disturb it."""
        operator = Operator(self.sim, what, work)
        machine = operator.machine
        if self.random.random() < 0.2:
            machine.after_steps(self.random.randrange(60), machine.kill)
        elif self.random.random() < 0.2:
            steps, seconds = self.random.randrange(60), 60 * self.random.random()
            machine.after_steps(steps, lambda: machine.freeze(seconds))
        elif self.random.random() < 0.5:
            operator.store.network.set(lost=0.2, unanswered=0.2)

    # --- limits ---

    kinesis_down: Inject = _network_fault("kinesis", of_all=True, lost=1.0)

    def narrow(self, seconds: float) -> None:
        """Reduce a client's bandwidth, so that answers take many seconds."""
        if victim := self._victim():
            rate = self.random.randrange(*NARROW_BYTES_PER_SECOND)
            victim.line.set_rate(rate)
            usual = self.sim.scenario.link_bytes_per_second
            self._later(seconds, victim.line.set_rate, usual)

    def block_each(self, seconds: float) -> None:
        """Let user code block the event loop for some seconds with each record."""
        if victim := self._victim():
            longest = MAX_BLOCKED_SECONDS * self.random.random()
            victim.user_code.block_each(longest, seconds)

    def skew(self, seconds: float) -> None:
        """Make the clocks of Kinesis and one client wrong by up to half a second."""
        _network_fault("kinesis", of_all=True, skew=SKEW_SECONDS)(self, seconds)
        if victim := self._victim():
            off = SKEW_SECONDS * (2 * self.random.random() - 1)
            victim.set_wall_clock(off)
            self._later(seconds, victim.set_wall_clock, -off)


# For each kind of fault, the method that injects it. It takes the fault's duration.
KINDS: dict[str, Inject] = {
    name: inject for name, inject in vars(FaultInjector).items() if name[0] != "_"
}
