"""Faults of Kinesis, DynamoDB and subscriptions, and of a stream's records.

Faults of subscriptions and consumers do nothing in runs without fan-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from kinesumer.errors import KinesumerError
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.testing.kinesis.limits import Bucket, Limits
from kinesumer.testing.kinesis.streams import AUTO, BY_KEY
from kinesumer.testing.simulation.client import Process
from kinesumer.testing.simulation.fan_out import LinkedEventStream
from kinesumer.testing.simulation.faults import (
    KINDS,
    MAX_OPEN_SHARDS,
    FaultInjector,
    Inject,
)
from kinesumer.testing.simulation.invariants.calls import RecordKey
from kinesumer.testing.simulation.memory_kinesis import MemorySource

# The range of a busy table's write capacity, as multiples of what a group at rest uses.
SPARE_UNITS = (1.5, 4.0)


def seek_to_end(self: FaultInjector, _seconds: float) -> None:
    """Split a shard, and seek it to its ending number, as other consumers store it."""
    stream = self._stream()
    name, parent = stream.name, self.random.choice(stream.open)
    shard_id, first, last, *_ = parent.shard
    if len(stream.open) >= MAX_OPEN_SHARDS or last - first < 2:
        return
    self.sim.split(name, shard_id)
    to = Position(parent.shard.ending_sequence_number or "")
    self._start_operator(f"seek {to.text}", lambda o: o.seek(name, to, shard_id))


def key(self: FaultInjector, seconds: float) -> None:
    """Let KMS refuse the use of a stream's key. Other streams are not affected."""
    self.sim.kinesis.disable_key(self.random.choice(self.sim.streams), seconds)


def foreign(self: FaultInjector, seconds: float) -> None:
    """Let a consumer outside the group read a stream without any backoff."""
    name = self.random.choice(self.sim.streams)
    # It leaves at least one of the reads that Kinesis permits.
    reads = self.random.randint(1, int(Limits().read_calls_per_second) - 1)
    until = self.sim.loop.real + seconds
    _read_foreign(self, self.sim.kinesis.source(name), 1 / reads, until)


def _read_foreign(
    self: FaultInjector, source: MemorySource, every: float, until: float
) -> None:
    if self.sim.faults_ended or self.sim.loop.real >= until:
        return
    for opened in self.sim.kinesis.stream(source.name).open:
        with suppress(KinesumerError):  # read on without a backoff
            iterator = source.get_iterator_now(opened.shard_id, Start.LATEST)
            source.get_records_now(iterator, Limits().page_records)
    self._later(every, _read_foreign, self, source, every, until)


def busy_table(self: FaultInjector, seconds: float) -> None:
    """Limit the table's writes to 1.5 to 4 times what a group at rest needs."""
    sim = self.sim
    shards = sum(len(sim.kinesis.stream(name).open) for name in sim.streams)
    beats = 2 * len(sim.living) / sim.config.heartbeat_interval_seconds
    calm = beats + shards / sim.config.commit_interval_seconds
    sim.store.write_capacity = Bucket(calm * self.random.uniform(*SPARE_UNITS))
    self._later(seconds, sim.restore_capacity)


def auto(self: FaultInjector, _seconds: float) -> None:
    """Switch a stream from its partition keys to AUTO, or back.

    With AUTO, producers leave out half of the keys.
    """
    stream = self._stream()
    stream.distribution = BY_KEY if stream.distribution == AUTO else AUTO
    self.sim.checker.note("strategy", stream.name, stream.distribution)


def poison(self: FaultInjector, _seconds: float) -> None:
    """Put a record that kills each process that gets it."""
    sim = self.sim
    name = self.random.choice(sim.streams)
    shard_id, number, parts = sim.put(name)
    part = self.random.choice(parts)
    for app in sim.apps:
        app.deadly.add(RecordKey(sim.arn(name), shard_id, number, part))


SERVICE_KINDS: dict[str, Inject] = {
    "foreign": foreign,
    "busy_table": busy_table,
    "seek_to_end": seek_to_end,
    "key": key,
}
# Schedules have these only by name.
RARE_KINDS: dict[str, Inject] = {"poison": poison, "auto": auto}


def _readers(self: FaultInjector) -> Iterator[Process]:
    """Yield one process or all processes, and note that reads may fail there."""
    living = self.sim.living
    if living and self.random.random() < 0.7:
        living = [self.random.choice(living)]
    for process in living:
        process.kinesis_network.last_disturbed_at = self.sim.loop.real
        yield process


def _stream_fault(
    act: Callable[[LinkedEventStream, float], None], share: float = 0.7
) -> Inject:
    """Return a fault of a share of the open event streams."""

    def inject(self: FaultInjector, seconds: float) -> None:
        for process in _readers(self):
            for stream in list(process.subscriptions.open):
                if self.random.random() < share:
                    act(stream, seconds)

    return inject


def push_refuse(self: FaultInjector, seconds: float) -> None:
    """End the subscriptions of processes, and refuse new ones for a time."""
    for process in _readers(self):
        process.subscriptions.refused_until = self.sim.loop.real + seconds
        for stream in list(process.subscriptions.open):
            stream.end_early()


def deregister(self: FaultInjector, _seconds: float) -> None:
    """Deregister the app's consumer of a stream. A client registers it again."""
    if not self.sim.scenario.fan_out:
        return
    # A client without fallback ends, and its supervisor starts it again.
    self.sim.was_deregistered = True
    for process in self.sim.living:
        process.kinesis_network.last_disturbed_at = self.sim.loop.real
    name = self.random.choice(self.sim.streams)
    self.sim.kinesis.deregister(name, self.sim.scenario.app)


SUBSCRIPTION_KINDS: dict[str, Inject] = {
    "push_cut": _stream_fault(lambda stream, _: stream.fail("cut")),
    "push_corrupt": _stream_fault(lambda stream, _: stream.fail("corrupt")),
    "push_end": _stream_fault(lambda stream, _: stream.end_early()),
    "push_exception": _stream_fault(lambda stream, _: stream.throw()),
    "push_stall": _stream_fault(lambda stream, seconds: stream.stall(seconds)),
    "push_refuse": push_refuse,
    "deregister": deregister,
}
EVERY_KIND = KINDS | SERVICE_KINDS | SUBSCRIPTION_KINDS | RARE_KINDS
