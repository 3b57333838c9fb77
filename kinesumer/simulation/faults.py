"""Faults of processes, networks, Kinesis, user code, and operators."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kinesumer.admin import drain
from kinesumer.coordination import pauses
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.simulation.operator import Operator
from kinesumer.simulation.trace import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.simulation.client import Process
    from kinesumer.simulation.network import NetworkConditions
    from kinesumer.simulation.operator import Work
    from kinesumer.simulation.simulation import Simulation

MAX_OPEN_SHARDS = 24
DRIFT = 0.05


class FaultInjector:
    """Injects one fault. Its own random numbers let others be left out."""

    def __init__(self, sim: Simulation, draw: int) -> None:
        self.sim = sim
        self.random = Random(draw)

    def _victim(self) -> Process | None:
        living = self.sim.living
        return self.random.choice(living) if living else None

    def _later(self, seconds: float, what: Callable[..., Any], *args: Any) -> None:
        def then() -> None:
            if not self.sim.faults_ended:
                what(*args)

        self.sim.loop.at_real(self.sim.loop.real + seconds, then)

    def _restart(self, process: Process, client_id: str | None) -> None:
        if self.sim.scenario.static_ids or self.random.random() < 0.5:
            client_id = process.client_id
        if all(other.client_id != client_id for other in self.sim.living):
            self.sim.start_process(client_id, process.streams)

    # --- processes ---

    def crash(self, duration_seconds: float) -> None:
        """Kill a process and later start another, with the same id or a new one.

        The first by id is often the leader, so it is killed every other time.
        """
        victim = self._victim()
        if victim is None:
            return
        if self.random.random() < 0.5:
            victim = min(self.sim.living, key=lambda process: process.client_id)
        victim.kill()
        self._later(duration_seconds / 2 + 0.01, self._restart, victim, None)

    def stall(self, duration_seconds: float) -> None:
        """Stop a process between any two steps, for up to a minute."""
        if victim := self._victim():
            victim.freeze(duration_seconds)

    def suspend(self, duration_seconds: float) -> None:
        """Put a computer to sleep: its timers stop, but its clock goes on."""
        if victim := self._victim():
            victim.freeze(duration_seconds, suspend=True)

    def jump(self, _lasts: float) -> None:
        """Set a computer's wall clock one hour forward or back."""
        if victim := self._victim():
            victim.set_wall_clock(self.random.choice((-3600, 3600)))

    def drift(self, duration_seconds: float) -> None:
        """Let a computer's clocks run up to 5 % faster or slower."""
        if victim := self._victim():
            before = victim.machine.rate
            victim.set_clock_rate(1 + DRIFT * (2 * self.random.random() - 1))
            self._later(duration_seconds, victim.set_clock_rate, before)

    def leader_flap(self, duration_seconds: float) -> None:
        """Stop the leader for about a lease, several times.

        A stopped leader that goes on believes that it still leads.
        """
        if victim := self._leader():
            victim.freeze(6 + 6 * self.random.random())
        if duration_seconds > 12:
            self._later(12, self.leader_flap, duration_seconds - 12)

    def _leader(self) -> Process | None:
        rows = self.sim.store.rows(f"leader#{self.sim.scenario.app}")
        leading = {row["client_id"] for row in rows}
        return next((p for p in self.sim.living if p.client_id in leading), None)

    def leave(self, duration_seconds: float) -> None:
        """Let a process leave, and later start another."""
        if victim := self._victim():
            victim.leave()
            self._later(duration_seconds, self._restart, victim, None)

    def join(self, duration_seconds: float) -> None:
        """Start one more process, which leaves later."""
        if len(self.sim.living) < 2 * self.sim.scenario.members:
            self._later(duration_seconds + 1, self.sim.start_process().leave)

    def deploy(self, _lasts: float) -> None:
        """Replace each process in turn by one with other streams."""
        for index, process in enumerate(self.sim.living):
            self._later(3 * index, process.leave)
            self._later(3 * index + 4 * self.random.random(), self._next, process)

    def _next(self, process: Process) -> None:
        streams = self._some_streams()
        if len(self.sim.living) < 2 * self.sim.scenario.members:
            self.sim.start_process(None, streams)

    def refresh(self, _lasts: float) -> None:
        """Change the streams of one process."""
        if victim := self._victim():
            victim.refresh(self._some_streams())

    def _some_streams(self) -> tuple[str, ...]:
        return self.sim.some_streams(self.random)

    # --- networks ---

    def _set_network(
        self, duration_seconds: float, *places: NetworkConditions, **rates: float
    ) -> None:
        for network in places:
            network.set(**rates)
            self._later(duration_seconds, network.clear, *rates)

    def _store_of_one(self, duration_seconds: float, **rates: float) -> None:
        if victim := self._victim():
            self._set_network(duration_seconds, victim.store.network, **rates)

    def _kinesis_of_one(self, duration_seconds: float, **rates: float) -> None:
        if victim := self._victim():
            self._set_network(duration_seconds, victim.kinesis_network, **rates)

    def _store_of_all(self, duration_seconds: float, **rates: float) -> None:
        stores = (process.store.network for process in self.sim.living)
        self._set_network(duration_seconds, *stores, **rates)

    def _kinesis_of_all(self, duration_seconds: float, **rates: float) -> None:
        sources = (process.kinesis_network for process in self.sim.living)
        self._set_network(duration_seconds, *sources, **rates)

    def store_cut(self, duration_seconds: float) -> None:
        """Disconnect one process from the store."""
        self._store_of_one(duration_seconds, lost=1.0)

    def store_mute(self, duration_seconds: float) -> None:
        """Lose the store's answers to one process; requests are applied."""
        self._store_of_one(duration_seconds, unanswered=1.0)

    def kinesis_cut(self, duration_seconds: float) -> None:
        """Disconnect one process from Kinesis."""
        self._kinesis_of_one(duration_seconds, lost=1.0)

    def kinesis_mute(self, duration_seconds: float) -> None:
        """Lose Kinesis's answers to one process; requests count."""
        self._kinesis_of_one(duration_seconds, unanswered=1.0)

    def both_cut(self, duration_seconds: float) -> None:
        """Disconnect one process from the store and Kinesis."""
        if victim := self._victim():
            self._set_network(
                duration_seconds, victim.store.network, victim.kinesis_network, lost=1.0
            )

    def store_down(self, duration_seconds: float) -> None:
        """Disconnect all processes from the store."""
        self._store_of_all(duration_seconds, lost=1.0)

    def throttle(self, duration_seconds: float) -> None:
        """Throttle all processes in the store, and one in Kinesis."""
        self._kinesis_of_one(duration_seconds, throttled=0.5)
        self._store_of_all(duration_seconds, throttled=self.random.random())

    def errors(self, duration_seconds: float) -> None:
        """Answer half of the requests of one process with status 500."""
        self._store_of_one(duration_seconds, failing=0.5)
        self._kinesis_of_one(duration_seconds, failing=0.5)

    def timeouts(self, duration_seconds: float) -> None:
        """Lose a third of the requests of one process."""
        self._store_of_one(duration_seconds, lost=0.33)
        self._kinesis_of_one(duration_seconds, lost=0.33)

    def unanswered(self, duration_seconds: float) -> None:
        """Lose half of the store's answers to one process after applying the write."""
        self._store_of_one(duration_seconds, unanswered=0.5)

    def flaky(self, duration_seconds: float) -> None:
        """Lose, delay and repeat requests of one process, and lose answers."""
        rates = {"lost": 0.1, "unanswered": 0.15, "late": 0.15, "twice": 0.2}
        self._store_of_one(
            duration_seconds, latency=0.2 * self.random.random(), **rates
        )

    def late(self, duration_seconds: float) -> None:
        """Delay requests that timed out by up to a minute."""
        self._store_of_one(duration_seconds, late=0.7)

    def twice(self, duration_seconds: float) -> None:
        """Repeat requests up to a minute later."""
        self._store_of_one(duration_seconds, twice=1.0)

    def edge(self, duration_seconds: float) -> None:
        """Stop a process for about a lease, while requests of others are late."""
        if victim := self._victim():
            victim.freeze(6 + 8 * self.random.random())
        for process in self.sim.living:
            if process is not victim:
                self._set_network(
                    duration_seconds, process.store.network, late=0.5, twice=0.3
                )

    def slow_net(self, duration_seconds: float) -> None:
        """Let the store take seconds to answer."""
        self._store_of_one(duration_seconds, latency=3 * self.random.random())

    def stale(self, duration_seconds: float) -> None:
        """Return old rows in eventually consistent reads."""
        self._store_of_all(duration_seconds, stale=0.7)

    # --- Kinesis ---

    def iterators(self, duration_seconds: float) -> None:
        """Let iterators expire early."""
        self._kinesis_of_all(duration_seconds, expired=0.1)

    def short_pages(self, duration_seconds: float) -> None:
        """Return pages with fewer records than there are."""
        self._kinesis_of_all(duration_seconds, short=0.5)

    def listing(self, duration_seconds: float) -> None:
        """Return incomplete lists of shards."""
        self._kinesis_of_all(duration_seconds, cut_off=0.5)

    def split(self, _lasts: float) -> None:
        """Split a shard."""
        name = self.random.choice(self.sim.streams)
        stream = self.sim.kinesis.stream(name)
        if len(stream.open) < max(MAX_OPEN_SHARDS, 2 * max(self.sim.scenario.shards)):
            shard = self.random.choice(stream.open).shard
            if shard.first_hash + 2 < shard.last_hash:
                self.sim.split(name, shard.shard_id)

    def merge(self, _lasts: float) -> None:
        """Merge two neighbours."""
        name = self.random.choice(self.sim.streams)
        opened = self.sim.kinesis.stream(name).open
        if len(opened) > 1:
            place = self.random.randrange(len(opened) - 1)
            low, high = opened[place].shard, opened[place + 1].shard
            self.sim.merge(name, low.shard_id, high.shard_id)

    def chain(self, duration_seconds: float) -> None:
        """Split and merge several times, with crashes between."""
        for index in range(self.random.randrange(2, 6)):
            at = index * self.random.random() * 3
            self._later(
                at, self.random.choice((self.split, self.merge)), duration_seconds
            )
        if self.random.random() < 0.5:
            self._later(3 * self.random.random(), self.crash, duration_seconds)

    def expire(self, _lasts: float) -> None:
        """Expire all but the last seconds of a stream, including whole parents."""
        name = self.random.choice(self.sim.streams)
        self.sim.expire(name, 5 + 60 * self.random.random())

    # --- user code ---

    def slow(self, duration_seconds: float) -> None:
        """Let user code take up to a second per record, and sometimes a minute."""
        if victim := self._victim():
            victim.user_code.slow_until = self.sim.loop.real + duration_seconds

    def block(self, duration_seconds: float) -> None:
        """Let user code block the event loop, but not the heartbeat thread."""
        if victim := self._victim():
            victim.block(duration_seconds)

    def fail(self, _lasts: float) -> None:
        """Let user code raise."""
        if victim := self._victim():
            victim.user_code.failures_left = self.random.randrange(1, 4)

    def hang(self, duration_seconds: float) -> None:
        """Let user code hang."""
        if victim := self._victim():
            victim.user_code.hang()
            self._later(duration_seconds, victim.user_code.unhang)

    # --- operators ---

    def pause(self, duration_seconds: float) -> None:
        """Pause a shard, a stream or everything, and resume it later."""
        target = self._target()
        self._start_operator(
            "pause", lambda o: pauses.pause(o.context, *target, "trial")
        )
        self._later(duration_seconds, self._resume, target)

    def resume(self, _lasts: float) -> None:
        """Resume everything that is paused."""
        self._start_operator("resume", Operator.resume)

    def _resume(self, target: tuple[str | None, str | None]) -> None:
        self._start_operator("resume", lambda o: pauses.resume(o.context, *target))

    def _target(self) -> tuple[str | None, str | None]:
        if self.random.random() < 0.2:
            return None, None
        name = self.random.choice(self.sim.streams)
        if self.random.random() < 0.3:
            return name, None
        return name, self._shard(name)

    def _shard(self, name: str) -> str:
        """Return an open shard, or sometimes a closed one."""
        stream = self.sim.kinesis.stream(name)
        if self.random.random() < 0.3:
            return self.random.choice(list(stream.shards))
        return self.random.choice(stream.open).shard.shard_id

    def drain(self, duration_seconds: float) -> None:
        """Drain a client, sometimes the last one, and undo that later."""
        if victim := self._victim():
            even_last = self.random.random() < 0.2
            self._drain(victim.client_id, undo=False, even_last=even_last)
            self._later(duration_seconds, self._drain, victim.client_id)

    def undrain(self, _lasts: float) -> None:
        """Undo all drains."""
        self._start_operator("undrain", Operator.undrain)

    def _drain(
        self, client_id: str, *, undo: bool = True, even_last: bool = False
    ) -> None:
        self._start_operator(
            f"{'undo' if undo else 'drain'} {client_id}",
            lambda o: drain.drain(o.context, client_id, undo=undo, even_last=even_last),
        )

    def seek(self, _lasts: float) -> None:
        """Seek a stream or one of its shards."""
        name = self.random.choice(self.sim.streams)
        shard_id = None
        if self.random.random() < 0.6:
            shard_id = self._shard(name)
        to = self._draw_position(name, shard_id)
        self._start_operator(f"seek {to}", lambda o: o.seek(name, to, shard_id))

    def _draw_position(self, name: str, shard_id: str | None) -> Position | Start:
        if shard_id is not None and self.random.random() < 0.5:
            log = self.sim.checker.shards[self.sim.arn(name), shard_id].log
            if log:
                _, number, part = self.random.choice(log)
                return Position(number, None if part == WHOLE else part)
        ago = 120 * self.random.random()
        moment = max(0.0, self.sim.kinesis.clock.wall() - ago)
        return self.random.choice(
            (
                Start.LATEST,
                Start.TRIM_HORIZON,
                Start(type="AT_TIMESTAMP", timestamp=moment),
            )
        )

    def _start_operator(self, what: str, work: Work) -> None:
        """Start an operator's command, and sometimes kill or stop it in the middle."""
        operator = Operator(self.sim, self.sim.operators, what, work)
        if self.random.random() < 0.2:
            operator.die_after(self.random.randrange(60))
        elif self.random.random() < 0.2:
            operator.stop_after(self.random.randrange(60), 60 * self.random.random())
        elif self.random.random() < 0.5:
            operator.store.network.set(lost=0.2, unanswered=0.2)
