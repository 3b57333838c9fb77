"""The list of faults of the protocol, drawn from a seed: what happens when, to whom."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kinesumer.testing.process import Process
    from kinesumer.testing.simulation import Simulation

BETWEEN_SECONDS = 10.0
"""Mean time between two faults."""
LENGTH_SECONDS = 60.0
MOST_OPEN_SHARDS = 24


class Mishaps:
    """Lets one thing after the other go wrong in a simulation."""

    def __init__(self, sim: Simulation, kinds: Iterable[str]) -> None:
        self.sim = sim
        self.kinds = tuple(kinds)
        self.random = sim.random_for("mishaps")
        self.happened = 0
        self._over = False

    async def run(self, seconds: float) -> None:
        """Make mishaps for a time, then let everything be well again."""
        end = self.sim.loop.real + seconds
        while self.kinds:
            pause = BETWEEN_SECONDS * 2 * self.random.random()
            if self.sim.loop.real + pause >= end:
                break
            await asyncio.sleep(pause)
            self.one(end)
        await asyncio.sleep(max(0.0, end - self.sim.loop.real))
        self.calm()

    def one(self, end: float) -> None:
        """Let one thing go wrong."""
        kind = self.random.choice(self.kinds)
        lasts = min(self._length(), end - self.sim.loop.real)
        self.happened += 1
        self.sim.judge.note("mishap", kind, f"{lasts:.1f} s")
        MISHAPS[kind](self, lasts)

    def calm(self) -> None:
        """Stop every fault: the network heals, user code recovers."""
        for process in self.sim.processes:
            process.store.weather.clear()
            process.sources.clear()
            process.slow_until = 0.0
            process.fails = 0
            process.machine.then = process.heart_thread.then = None
        self._over = True
        while self._staying() < min(2, self.sim.shape.members):
            self.sim.start_process()
        self.sim.judge.note("calm", "")

    def _staying(self) -> int:
        return sum(not process.leaving for process in self.sim.living)

    def _length(self) -> float:
        # Mostly a few seconds, now and then a minute.
        return LENGTH_SECONDS * self.random.random() ** 2

    def _victim(self) -> Process | None:
        living = self.sim.living
        return self.random.choice(living) if living else None

    def _later(self, seconds: float, what: Callable[..., Any], *args: Any) -> None:
        def then() -> None:
            if not self._over:
                what(*args)

        self.sim.loop.at_real(self.sim.loop.real + seconds, then)

    def _restart(self, process: Process, client_id: str | None) -> None:
        if self.sim.shape.static_ids or self.random.random() < 0.5:
            client_id = process.client_id
        if all(other.client_id != client_id for other in self.sim.living):
            self.sim.start_process(client_id, process.streams)

    # --- processes ---

    def crash(self, lasts: float) -> None:
        """Kill a process; start another after a while, with the same id or a new one.

        The first by id is the leader more often than not: it dies every other time.
        """
        victim = self._victim()
        if victim is None:
            return
        if self.random.random() < 0.5:
            victim = min(self.sim.living, key=lambda process: process.client_id)
        victim.kill()
        self._later(lasts / 2 + 0.01, self._restart, victim, None)

    def stall(self, lasts: float) -> None:
        """Stop a process between any two steps, for up to a minute."""
        if victim := self._victim():
            victim.freeze(lasts)

    def suspend(self, lasts: float) -> None:
        """Put a computer to sleep: timers stand still, the clock doesn't."""
        if victim := self._victim():
            victim.freeze(lasts, suspend=True)

    def jump(self, _lasts: float) -> None:
        """Set a computer's wall clock by an hour."""
        if victim := self._victim():
            victim.set_wall_clock(self.random.choice((-3600, 3600)))

    def leave(self, lasts: float) -> None:
        """Stop a process in good order; another joins after a while."""
        if victim := self._victim():
            victim.leave()
            self._later(lasts, self._restart, victim, None)

    def join(self, lasts: float) -> None:
        """Start one more process, which leaves after a while."""
        if len(self.sim.living) < 2 * self.sim.shape.members:
            self._later(lasts + 1, self.sim.start_process().leave)

    def deploy(self, _lasts: float) -> None:
        """Replace every process, one after the other, by one with other streams."""
        for index, process in enumerate(self.sim.living):
            self._later(3 * index, process.leave)
            self._later(3 * index + 4 * self.random.random(), self._next, process)

    def _next(self, process: Process) -> None:
        streams = self._some_streams()
        if len(self.sim.living) < 2 * self.sim.shape.members:
            self.sim.start_process(None, streams)

    def refresh(self, _lasts: float) -> None:
        """Change what one process consumes."""
        if victim := self._victim():
            victim.refresh(self._some_streams())

    def _some_streams(self) -> tuple[str, ...]:
        streams = self.sim.streams
        if len(streams) == 1 or self.random.random() < 0.5:
            return streams
        return tuple(sorted(self.random.sample(streams, len(streams) - 1)))

    # --- networks ---

    def _store_weather(self, lasts: float, **rates: float) -> None:
        if victim := self._victim():
            victim.store.weather.set(**rates)
            self._later(lasts, victim.store.weather.clear)

    def _source_weather(self, lasts: float, **rates: float) -> None:
        if victim := self._victim():
            victim.sources.set(**rates)
            self._later(lasts, victim.sources.clear)

    def store_cut(self, lasts: float) -> None:
        """Cut one process off the store."""
        self._store_weather(lasts, lost=1.0)

    def store_mute(self, lasts: float) -> None:
        """One way only: the store gets requests and applies them, no answer returns."""
        self._store_weather(lasts, unanswered=1.0)

    def kinesis_cut(self, lasts: float) -> None:
        """Cut one process off Kinesis."""
        self._source_weather(lasts, lost=1.0)

    def both_cut(self, lasts: float) -> None:
        """Cut one process off everything."""
        if victim := self._victim():
            for weather in (victim.store.weather, victim.sources):
                weather.set(lost=1.0)
                self._later(lasts, weather.clear)

    def store_down(self, lasts: float) -> None:
        """The store answers nobody."""
        for process in self.sim.living:
            process.store.weather.set(lost=1.0)
            self._later(lasts, process.store.weather.clear)

    def throttle(self, lasts: float) -> None:
        """The store throttles everybody, Kinesis one."""
        self._source_weather(lasts, throttled=0.5)
        rate = self.random.random()
        for process in self.sim.living:
            process.store.weather.set(throttled=rate)
            self._later(lasts, process.store.weather.clear)

    def errors(self, lasts: float) -> None:
        """Half of the answers are 500s."""
        self._store_weather(lasts, failing=0.5)
        self._source_weather(lasts, failing=0.5)

    def flaky(self, lasts: float) -> None:
        """Requests are lost, late, repeated; answers are lost."""
        rates = {"lost": 0.1, "unanswered": 0.15, "late": 0.15, "twice": 0.2}
        self._store_weather(lasts, latency=0.2 * self.random.random(), **rates)

    def late(self, lasts: float) -> None:
        """Requests that seem lost arrive up to a minute later."""
        self._store_weather(lasts, late=0.7)

    def twice(self, lasts: float) -> None:
        """Requests arrive again, up to a minute later."""
        self._store_weather(lasts, twice=1.0)

    def edge(self, _lasts: float) -> None:
        """Stop a process for about as long as a lease, while requests run late."""
        if victim := self._victim():
            victim.freeze(6 + 8 * self.random.random())
        for process in self.sim.living:
            if process is not victim:
                process.store.weather.set(late=0.5, twice=0.3)
                self._later(15, process.store.weather.clear)

    def slow_net(self, lasts: float) -> None:
        """The store takes seconds to answer."""
        self._store_weather(lasts, latency=3 * self.random.random())

    def stale(self, lasts: float) -> None:
        """Eventually consistent reads of table and index are seconds old."""
        for process in self.sim.living:
            process.store.weather.set(stale=0.7)
            self._later(lasts, process.store.weather.clear)

    # --- Kinesis ---

    def odd(self, lasts: float) -> None:
        """Iterators expire, pages are short, listings are cut off."""
        for process in self.sim.living:
            process.sources.set(odd=0.3)
            self._later(lasts, process.sources.clear)

    def split(self, _lasts: float) -> None:
        """Split a shard."""
        name = self.random.choice(self.sim.streams)
        stream = self.sim.kinesis.stream(name)
        if len(stream.open) < MOST_OPEN_SHARDS:
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

    def chain(self, lasts: float) -> None:
        """Reshard again and again, with crashes between."""
        for index in range(self.random.randrange(2, 6)):
            at = index * self.random.random() * 3
            self._later(at, self.random.choice((self.split, self.merge)), lasts)
        if self.random.random() < 0.5:
            self._later(3 * self.random.random(), self.crash, lasts)

    def expire(self, _lasts: float) -> None:
        """Retention passes what is older than a few seconds, whole parents too."""
        name = self.random.choice(self.sim.streams)
        self.sim.expire(name, 5 + 60 * self.random.random())

    # --- user code ---

    def slow(self, lasts: float) -> None:
        """User code takes up to a second for a record, now and then a minute."""
        if victim := self._victim():
            victim.slow_until = self.sim.loop.real + lasts

    def block(self, lasts: float) -> None:
        """User code blocks the event loop; the heart has a thread of its own."""
        if victim := self._victim():
            victim.block(lasts)

    def fail(self, _lasts: float) -> None:
        """User code raises."""
        if victim := self._victim():
            victim.fails = self.random.randrange(1, 4)


_OTHERS = ("run", "one", "calm")
MISHAPS: dict[str, Callable[[Mishaps, float], None]] = {
    name: made
    for name, made in vars(Mishaps).items()
    if callable(made) and not name.startswith("_") and name not in _OTHERS
}
"""Every kind of fault by name."""
