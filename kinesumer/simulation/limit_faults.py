"""Faults at limits: narrow links, backlogs, blocked loops, busy tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import KinesumerError
from kinesumer.model.streams import Start
from kinesumer.simulation.faults import FaultInjector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesumer.simulation.memory_kinesis import MemorySource

NARROW_BYTES_PER_SECOND = (600_000, 2_000_000)
"""Bandwidth of a narrow link; the lowest one carries 10 MB within 30 s."""
MAX_BLOCKED_SECONDS = 8.0
FOREIGN_READS_PER_SECOND = (1, 4)
SKEW_SECONDS = 0.5
SPARE_UNITS = (1.5, 4.0)
"""Write units that a busy table accepts, as a multiple of what a group at rest uses."""
PAGE_RECORDS = 10_000


class LimitFaultInjector(FaultInjector):
    """Injects one fault at a limit."""

    def kinesis_down(self, duration_seconds: float) -> None:
        """Disconnect all clients from Kinesis, so that a backlog grows."""
        self._kinesis_of_all(duration_seconds, lost=1.0)

    def narrow(self, duration_seconds: float) -> None:
        """Narrow a client's link, so that answers take many seconds."""
        if victim := self._victim():
            rate = self.random.randrange(*NARROW_BYTES_PER_SECOND)
            victim.line.set_rate(rate)
            usual = self.sim.scenario.link_bytes_per_second
            self._later(duration_seconds, victim.line.set_rate, usual)

    def block_each(self, duration_seconds: float) -> None:
        """Let user code block the event loop for seconds with each record."""
        if victim := self._victim():
            victim.user_code.block_each(
                MAX_BLOCKED_SECONDS * self.random.random(), duration_seconds
            )

    def foreign(self, duration_seconds: float) -> None:
        """Let another consumer read a stream's shards without backing off."""
        name = self.random.choice(self.sim.streams)
        reads = self.random.randint(*FOREIGN_READS_PER_SECOND)
        ForeignConsumer(
            self, name, 1 / reads, self.sim.loop.real + duration_seconds
        ).read()

    def busy_table(self, duration_seconds: float) -> None:
        """Limit the table's writes to little more than a group at rest needs."""
        sim, usual = self.sim, self.sim.scenario.table_units_per_second
        shards = sum(len(sim.kinesis.stream(name).open) for name in sim.streams)
        beats = 2 * len(sim.living) / sim.config.heartbeat_interval_seconds
        calm = beats + shards / sim.config.commit_interval_seconds
        sim.store.write_units_per_second = calm * self.random.uniform(*SPARE_UNITS)

        def end() -> None:
            sim.store.write_units_per_second = usual

        self._later(duration_seconds, end)

    def skew(self, duration_seconds: float) -> None:
        """Set the clocks of Kinesis and of one client wrong by half a second."""
        self._kinesis_of_all(duration_seconds, skew=SKEW_SECONDS)
        if victim := self._victim():
            off = SKEW_SECONDS * (2 * self.random.random() - 1)
            victim.set_wall_clock(off)
            self._later(duration_seconds, victim.set_wall_clock, -off)


class ForeignConsumer:
    """Another consumer, which reads each shard at a fixed rate and never backs off."""

    def __init__(
        self, fault: LimitFaultInjector, name: str, every: float, until: float
    ) -> None:
        self._fault = fault
        self._name = name
        self._every, self._until = every, until
        self._source: MemorySource = fault.sim.kinesis.source(name)

    def read(self) -> None:
        """Read each open shard once, and schedule the next read."""
        sim = self._fault.sim
        if sim.faults_ended or sim.loop.real >= self._until:
            return
        for made in sim.kinesis.stream(self._name).open:
            try:
                latest = Start.LATEST
                found = self._source.get_iterator_now(made.shard.shard_id, latest)
                self._source.get_records_now(found, PAGE_RECORDS)
            except KinesumerError:
                continue  # refused: the next read comes as soon
        sim.loop.at_real(sim.loop.real + self._every, self.read)


def _kinds(injector: type[FaultInjector]) -> Iterator[str]:
    return (name for name in vars(injector) if not name.startswith("_"))


KINDS: dict[str, Callable[[LimitFaultInjector, float], None]] = {
    name: getattr(LimitFaultInjector, name)
    for name in (*_kinds(FaultInjector), *_kinds(LimitFaultInjector))
}
"""The method that injects each kind of fault. It takes the fault's duration."""
