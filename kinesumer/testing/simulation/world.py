"""The services, streams and checker of a simulated app."""

from __future__ import annotations

import asyncio
import math
import random
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any
from zlib import crc32

from kinesumer.config import Config
from kinesumer.model.positions import Position
from kinesumer.model.streams import HASH_KEYS, Shard, ShardKey
from kinesumer.telemetry.history import History
from kinesumer.telemetry.history_file import TextSink
from kinesumer.testing.kinesis.limits import Bucket
from kinesumer.testing.kinesis.streams import AUTO
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.calls import DeadlyRecords, RecordKey
from kinesumer.testing.simulation.invariants.checker import InvariantChecker
from kinesumer.testing.simulation.invariants.leases import LeaseChecker
from kinesumer.testing.simulation.lease_table import (
    create_lease,
    lease_prefix,
    stored_write,
)
from kinesumer.testing.simulation.machine import Machine, SharedLink
from kinesumer.testing.simulation.memory_kinesis import (
    SUBSCRIPTION_LIMITS,
    MemoryKinesis,
)
from kinesumer.testing.simulation.memory_store import MemoryStore
from kinesumer.testing.simulation.network import LinkedSource, NetworkConditions
from kinesumer.testing.simulation.scenarios import Scenario, UserCode
from kinesumer.testing.simulation.tables import LinkedTableSource, place_shard
from kinesumer.wire.put_records import Entry, aggregate

# Idle shards get records only in this many seconds after the start.
BUSY_SECONDS = 30.0


class World(ABC):
    """The services that the clients of an app use, and the checker of the app."""

    loop: VirtualLoop
    kinesis: MemoryKinesis

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        user: UserCode | None = None,
        host: World | None = None,
    ) -> None:
        self.scenario, self.seed, self.user = scenario, seed, user
        if host is None:
            self.loop = VirtualLoop(self.random_for("scheduler"))
            seconds = scenario.subscription_seconds
            limits = replace(SUBSCRIPTION_LIMITS, subscription_seconds=seconds)
            self.kinesis = MemoryKinesis(self.loop.services, limits=limits)
        else:
            self.loop, self.kinesis = host.loop, host.kinesis
        # If a consumer was deregistered, clients without fallback may end.
        self.was_deregistered = False
        self.random: random.Random = self.random_for("world")
        self.store: MemoryStore = MemoryStore(self.loop.services)
        self.leases: MemoryStore = MemoryStore(self.loop.services)  # of a KCL fleet
        self.restore_capacity()
        options: dict[str, Any] = {
            "assignor": scenario.assignor,
            "commit": scenario.commit,
            "max_uncommitted_records": 100,  # so few that commits come early, too
        }
        self.config: Config = Config(**(options | scenario.config))
        self.checker: InvariantChecker = self._new_checker()
        self.deadly: DeadlyRecords = self.checker.deadly
        numbers = range(len(scenario.shards))
        self.streams: tuple[str, ...] = tuple(f"stream-{number}" for number in numbers)
        # The streams that are those of tables.
        self.tables: frozenset[str] = frozenset(self.streams[: scenario.tables])
        self.producing = True
        self.faults_ended = False
        # The last error that the user's handler raised after the faults ended.
        self.late_failure: Exception | None = None
        self.produced: int = 0
        self._ids, self._names = count(1), count(0)
        # The lines of each history; None if the processes write none.
        self.histories: dict[str, list[bytes]] | None = None
        # This app, and others that consume the same streams with their own tables.
        self.apps: Sequence[World] = [self]

    @abstractmethod
    def killed(self, machine: Machine, key: RecordKey) -> None:
        """Kill the process whose user code got a deadly record."""

    def _new_checker(self) -> InvariantChecker:
        config, scenario = self.config, self.scenario
        limits = config.max_uncommitted_records, config.max_shards
        kind = LeaseChecker if scenario.kcl_fleet else InvariantChecker
        checker = kind(self.loop, *limits)
        checker.is_by_key = scenario.concurrency > 1
        checker.calls.is_active = scenario.callbacks
        if scenario.batches and not scenario.concurrency:
            checker.turns.most_seconds = 0.0  # a turn is one batch
        checker.calls.wait_seconds = config.drain_timeout_seconds
        self.store.on_write.append(checker.applied)
        self.leases.on_write.append(checker.applied)
        return checker

    def _create_streams(self) -> None:
        for name, shards in zip(self.streams, self.scenario.shards, strict=True):
            hours = self.scenario.retention_seconds / 3600 or 24
            self.kinesis.create_stream(name, shards, retention_hours=hours)
            self._note_new_shards(name)
            if self.scenario.kcl_fleet:
                self._create_leases(name)

    def _create_leases(self, name: str) -> None:
        """Create the leases of a stream's first shards, as KCL workers have done."""
        for shard in self.kinesis.source(name).list_shards_now():
            write = create_lease(shard, self._lease_prefix(name))
            self.leases.write_now(stored_write(write))
        # No read is so old that it lacks them.
        self.leases.restore(self.leases.snapshot(), "leases")

    def _lease_prefix(self, name: str) -> str:
        """Return how the keys of a stream's leases begin."""
        stream = self.kinesis.stream(name)
        if len(self.streams) == 1:
            return ""
        return lease_prefix(stream.arn, stream.created_at)

    def restore_capacity(self) -> None:
        """Give the table the capacity of the scenario."""
        units = self.scenario.table_units_per_second or math.inf
        self.store.write_capacity = Bucket(units)

    def random_for(self, purpose: str) -> random.Random:
        """Return a random generator that is used for one purpose only."""
        if self.scenario.app != Scenario.app:
            purpose = f"{purpose} of {self.scenario.app}"
        return random.Random(f"{self.seed} {self.scenario.name} {purpose}")

    def new_id(self) -> str:
        """Return an id that is not in use."""
        return f"id-{next(self._ids)}"

    def new_history(self, name: str) -> History | None:
        """Return a new history of a process, if the processes write histories."""
        if self.histories is None:
            return None
        lines = self.histories[f"{name}-{len(self.histories)}"] = []
        history = History([TextSink(lines.append)], self.loop.services)
        history.begin(self.scenario.app, name, self.config.commit)
        return history

    def config_of(self, client_id: str) -> Config:
        """Return the configuration of a member. Its label is a zone, if any."""
        if not self.scenario.labels:
            return self.config
        zone = crc32(client_id.encode()) % self.scenario.labels
        return replace(self.config, label=f"zone-{zone}")

    @property
    def auto(self) -> bool:
        """True if a request for the next record acks the previous record."""
        return self.config.commit == "auto"

    @property
    def retention_seconds(self) -> float:
        """The retention period of the streams, in seconds."""
        return 3600 * self.kinesis.stream(self.streams[0]).retention_hours

    def report_crash(self, name: str, error: BaseException) -> None:
        """Report a process that ended with an unexpected error."""
        text = "".join(traceback.format_exception(error))
        self.checker.fail("crash", f"{name}: {text}")

    def arn(self, name: str) -> str:
        """Return a stream's ARN."""
        return self.kinesis.stream(name).arn

    def some_streams(self, random: random.Random) -> tuple[str, ...]:
        """Return all streams, or at random all but one, except in a KCL fleet."""
        if len(self.streams) == 1 or random.random() < 0.5 or self.scenario.kcl_fleet:
            return self.streams
        return tuple(sorted(random.sample(self.streams, len(self.streams) - 1)))

    def put(
        self, name: str, hash_key: int | None = None, data: bytes | None = None
    ) -> tuple[str, str, Sequence[int | None]]:
        """Produce one record, at a random hash key by default.

        Return its shard id, its sequence number, and its sub-sequence numbers.
        """
        if hash_key is None:
            # Idle shards are those with the highest hash keys.
            hash_key = self.random.getrandbits(128) % HASH_KEYS
            if self.scenario.idle and self.loop.real > BUSY_SECONDS:
                hash_key = int(hash_key * (1 - self.scenario.idle))
        concurrent = self.scenario.concurrency
        key = f"key-{self.random.randrange(20)}" if concurrent else "key"
        is_auto = self.kinesis.stream(name).distribution == AUTO
        if is_auto and self.random.random() < 0.5:
            key = ""
        data = b"x" * self.scenario.record_bytes if data is None else data
        if self.user is not None and self.user.data is not None:
            data = self.user.data(self.produced)
        parts: Sequence[int | None] = (None,)
        if self.random.random() < self.scenario.aggregated:
            parts, data = self._aggregate(data, key or "key", str(hash_key))
        shard_id, number = self.kinesis.put(name, data, key, hash_key)
        now = self.kinesis.clock.wall()
        self.produced += len(parts)
        positions = [(number, part) for part in parts]
        for app in self.apps:
            app.checker.produced(self.arn(name), shard_id, positions, now)
        if self.histories is not None:
            lines = self.histories.setdefault("producer", [])
            history = History([TextSink(lines.append)], self.loop.services)
            shard = ShardKey(self.arn(name), shard_id)
            history.produced(shard, [Position(*each) for each in positions])
        return shard_id, number, parts

    def _aggregate(
        self, data: bytes, key: str, hash_key: str
    ) -> tuple[Sequence[int | None], bytes]:
        """Return the parts and the data of an aggregate, which may be an odd one.

        The hash key of an odd one is no number. If it can't be opened, it has one part.
        """
        count, share = self.random.randrange(1, 6), self.scenario.odd_aggregates
        if not share or self.random.random() >= share:
            return range(count), aggregate([Entry(data, key, hash_key)] * count)
        data = aggregate([Entry(data, key, "undefined")] * count)
        if self.random.random() < 0.5:
            return range(count), data
        return (None,), data[:-1] + bytes([data[-1] ^ 1])  # with a wrong checksum

    def put_everywhere(self) -> None:
        """Put a small record into each open shard."""
        for name in self.streams:
            for shard in self.kinesis.stream(name).open:
                self.put(name, shard.shard.first_hash, bytes(Scenario.record_bytes))

    async def produce(self) -> None:
        """Produce records at the scenario's rate, while ``producing`` is true."""
        while self.producing:
            self.put(self.random.choice(self.streams))
            mean = 1 / self.scenario.records_per_second
            await asyncio.sleep(2 * mean * self.random.random())

    async def apply_retention(self) -> None:
        """Expire records that are too old, while ``producing`` is true."""
        while self.producing and (seconds := self.scenario.retention_seconds):
            # Records expire ten times in a retention period.
            await asyncio.sleep(seconds / 10)
            for name in self.streams:
                self.expire(name, seconds)

    async def roll_tables_over(self) -> None:
        """Roll each shard of the tables over when it is old, until the faults end."""
        while not self.faults_ended and (seconds := self.scenario.roll_over_seconds):
            await asyncio.sleep(seconds / 10)
            now = self.kinesis.clock.wall()
            for name in sorted(self.tables):
                for shard in list(self.kinesis.stream(name).open):
                    age = (0.8 + 0.4 * self.random.random()) * seconds
                    if now - shard.created_at >= age:
                        self.roll_over(name, shard.shard_id)

    def split(self, name: str, shard_id: str) -> list[str]:
        """Split a shard."""
        children = self.kinesis.split(name, shard_id)
        self.checker.note("split", shard_id, children)
        self._note_new_shards(name)
        return children

    def merge(self, name: str, shard_id: str, adjacent_id: str) -> str:
        """Merge two shards."""
        child = self.kinesis.merge(name, shard_id, adjacent_id)
        self.checker.note("merge", (shard_id, adjacent_id), child)
        self._note_new_shards(name)
        return child

    def roll_over(self, name: str, shard_id: str) -> str:
        """Roll a shard of a table over."""
        child = self.kinesis.roll_over(name, shard_id)
        self.checker.note("roll over", shard_id, child)
        self._note_new_shards(name)
        return child

    def first_hash(self, name: str, shard: Shard) -> int:
        """Return where a shard begins in plans."""
        return (place_shard(shard) if name in self.tables else shard).first_hash

    def source(
        self,
        machine: Machine,
        random: random.Random,
        network: NetworkConditions,
        name: str,
        line: SharedLink | None = None,
    ) -> LinkedSource | LinkedTableSource:
        """Return the source of a stream that a machine uses over its link."""
        kind = LinkedTableSource if name in self.tables else LinkedSource
        return kind(machine, random, network, self.kinesis, name, line)

    def expire(self, name: str, seconds: float) -> None:
        """Expire all records older than a number of seconds."""
        before = self.kinesis.clock.wall() - seconds
        self.kinesis.expire(name, before)
        listed = self.kinesis.stream(name).shards
        for app in self.apps:
            app.checker.expired(self.arn(name), before, listed)
        self.checker.note("expire", name, f"{seconds:.0f} s")

    def _note_new_shards(self, name: str) -> None:
        stream = self.kinesis.stream(name)
        for shard_id, shard in stream.shards.items():
            if (stream.arn, shard_id) not in self.checker.shards:
                for app in self.apps:
                    app.checker.opened(stream.arn, shard_id, shard.shard.parents)
                if isinstance(self.checker, LeaseChecker):
                    key = self._lease_prefix(name) + shard_id
                    self.checker.lease_places[key] = stream.arn, shard_id
