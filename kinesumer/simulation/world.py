"""Many clients, one table, several streams, and all that goes wrong with them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from zlib import crc32

from kinesumer.config import Config
from kinesumer.model.streams import HASH_KEYS, Start
from kinesumer.simulation.client import Process
from kinesumer.simulation.event_loop import VirtualLoop
from kinesumer.simulation.invariants.checker import Judge
from kinesumer.simulation.invariants.liveness import Liveness, LossLog
from kinesumer.simulation.memory_kinesis import MemoryKinesis
from kinesumer.simulation.memory_store import MemoryStore
from kinesumer.simulation.operator import Operator
from kinesumer.simulation.schedule import PER_MINUTE
from kinesumer.wire.put_records import UserRecord, aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kinesumer.handlers.signature import Handler

T = TypeVar("T")

PRODUCE_SECONDS = 0.5
MAX_UNCOMMITTED = 100
KEYS = 20
SMALL = b"x" * 20
BUSY_SECONDS = 30.0
"""From then on, shards that are to be idle are so."""
RETENTION_STEPS = 10
DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class Shape:
    """What a simulated group looks like."""

    name: str = "plain"
    members: int = 3
    shards: tuple[int, ...] = (8,)
    """Shards of each stream at the start."""
    records_per_second: float = 20.0
    """Over all streams."""
    aggregated: float = 0.0
    """Share of the Kinesis records that hold several user records."""
    assignor: Literal["range", "sticky"] = "range"
    commit: Literal["auto", "manual"] = "auto"
    batches: bool = False
    concurrency: int = 0
    """Calls at a time in a shard by ``run()``, with many partition keys; 0: user code
    iterates."""
    start: Start = Start.TRIM_HORIZON
    mixed: bool = False
    """Members consume different streams."""
    min_read_interval_seconds: float = 0.2
    """Shortest time between two reads of a shard."""
    static_ids: bool = False
    """A restarted process has its predecessor's id."""
    faults_per_minute: float = PER_MINUTE
    """All kinds together, if no rates are given."""
    drift: float = 0.05
    """How much faster or slower a machine's clocks may run."""
    together: bool = False
    """All start at the same moment."""
    labels: int = 0
    """How many zones the members are spread over; 0: they don't say."""
    app: str = "app"
    faults: str = "all"
    """What goes wrong, unless something else is asked for."""
    tasks: int = 1
    """How many tasks of a client iterate over its batches (``commit="manual"``)."""
    record_bytes: int = len(SMALL)
    link_bytes_per_second: float = 0.0
    """What each client's network carries of Kinesis's answers; 0: no limit."""
    table_units_per_second: float | None = None
    """Write units that the table takes while there are faults; None: no limit."""
    apps: int = 1
    """How many apps consume the streams, each with so many members."""
    idle: float = 0.0
    """Share of the shards that get no records after the first ones."""
    retention_seconds: float = 0.0
    """After so long records expire; 0: only where a fault says so."""
    skew_seconds: float = 0.0
    """How far the clocks of Kinesis's servers are off while there are faults."""
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class User:
    """User code that simulated clients call with each record."""

    handler: Handler
    data: Callable[[int], bytes] | None = None
    """Makes the nth record's data."""
    restarts_after: tuple[type[Exception], ...] = ()
    """Errors of the handler after which its process starts again."""


class Simulation:
    """One run: the world, its processes, and the judge who watches them."""

    def __init__(
        self,
        shape: Shape,
        seed: int,
        user: User | None = None,
        host: Simulation | None = None,
    ) -> None:
        self.shape, self.seed, self.user = shape, seed, user
        if host is None:
            self.loop = VirtualLoop(self.random_for("scheduler"))
            self.kinesis = MemoryKinesis(self.loop.services)
        else:
            self.loop, self.kinesis = host.loop, host.kinesis
        self.random = self.random_for("world")
        self.store = MemoryStore(self.loop.services)
        self.store.write_units_per_second = shape.table_units_per_second
        self.config = Config(
            **{
                "assignor": shape.assignor,
                "commit": shape.commit,
                "max_uncommitted_records": MAX_UNCOMMITTED,
                **shape.config,
            }
        )
        self.judge = Judge(
            self.loop, self.config.max_uncommitted_records, shape.assignor
        )
        self.judge.is_by_key = shape.concurrency > 1
        self.store.on_write.append(self.judge.applied)
        self.processes: list[Process] = []
        self.operators: list[Operator] = []
        self.streams = tuple(f"stream-{index}" for index in range(len(shape.shards)))
        self.producing = True
        self._data = b"x" * shape.record_bytes
        self.is_calm = False
        """Nothing goes wrong any more."""
        self.background: list[asyncio.Task[Any]] = []
        self.expects_fatal = False
        self.ids_in_use = 0
        self.late_failure: Exception | None = None
        """The last error of the user's handler, after all faults were over."""
        self.produced = 0
        self._ids = count(1)
        self._names = count(0)
        self.liveness = Liveness(self)
        self.apps = [self]
        """This app, and others that consume the same streams with tables of their
        own."""
        if host is None:
            for name, shards in zip(self.streams, shape.shards, strict=True):
                hours = self.retention_seconds / 3600
                self.kinesis.create_stream(name, shards, retention_hours=hours)
            for number in range(2, shape.apps + 1):
                other = replace(shape, app=f"{shape.app}-{number}", apps=1)
                self.apps.append(Simulation(other, seed, user, self))
            for name in self.streams:
                self._tell_of_shards(name)

    def run(self, play: Callable[[Simulation], Coroutine[Any, Any, T]]) -> T:
        """Run a play in virtual time. Raises ViolationError."""
        with LossLog(self):
            return self.loop.run(play(self))

    def random_for(self, purpose: str) -> random.Random:
        """Return a generator of its own for a purpose."""
        if self.shape.app != Shape.app:
            purpose = f"{purpose} of {self.shape.app}"
        return random.Random(f"{self.seed} {self.shape.name} {purpose}")

    def new_id(self) -> str:
        """Return an id that nobody else has."""
        return f"id-{next(self._ids)}"

    def config_of(self, client_id: str) -> Config:
        """Return the configuration of one member, in a zone if there are any."""
        if not self.shape.labels:
            return self.config
        zone = crc32(client_id.encode()) % self.shape.labels
        return replace(self.config, label=f"zone-{zone}")

    @property
    def auto(self) -> bool:
        """Whether asking for the next record marks the one before as done."""
        return self.config.commit == "auto"

    @property
    def retention_seconds(self) -> float:
        """How long the streams say that they keep records."""
        return self.shape.retention_seconds or DAY_SECONDS

    # --- processes ---

    @property
    def living(self) -> list[Process]:
        """Processes that run."""
        return [process for process in self.processes if process.alive]

    def start_process(
        self, client_id: str | None = None, streams: tuple[str, ...] | None = None
    ) -> Process:
        """Start a process on a machine of its own."""
        if client_id is None:
            client_id = f"client-{next(self._names)}"
        drift = self.shape.drift * (2 * self.random.random() - 1)
        if streams is None:
            mixed = self.shape.mixed
            streams = self.some_streams(self.random) if mixed else self.streams
        process = Process(self, client_id, streams, 1 + drift)
        self.processes.append(process)
        self.judge.note("start", client_id, process.streams)
        return process

    async def start_all(self) -> None:
        """Start the processes of the shape, together or one after the other."""
        for _ in range(self.shape.members):
            self.start_process()
            if not self.shape.together:
                await asyncio.sleep(2 * self.random.random())

    def calm(self) -> None:
        """Stop every fault: the network heals, user code recovers."""
        self.is_calm = True
        self.store.write_units_per_second = None
        for process in self.processes:
            process.calm()
        while sum(not p.leaving for p in self.living) < min(2, self.shape.members):
            self.start_process()
        for operator in self.operators:
            operator.calm()
        self.judge.note("calm", "")
        Operator(self, "set all right", Operator.set_right)

    def crashed(self, process: Process | Operator, error: BaseException) -> None:
        """A process ended with an error that nobody expects."""
        import traceback

        text = "".join(traceback.format_exception(error))
        self.judge.fail("crash", f"{process.name}: {text}")

    # --- streams ---

    def arn(self, name: str) -> str:
        """Return a stream's ARN."""
        return self.kinesis.stream(name).arn

    def some_streams(self, random: random.Random) -> tuple[str, ...]:
        """Return all streams, or all but one."""
        if len(self.streams) == 1 or random.random() < 0.5:
            return self.streams
        return tuple(sorted(random.sample(self.streams, len(self.streams) - 1)))

    def put(
        self, name: str, hash_key: int | None = None, data: bytes | None = None
    ) -> None:
        """Produce one record, by default anywhere in the hash space."""
        if hash_key is None:
            hash_key = self.random.getrandbits(128) % HASH_KEYS
            if self.shape.idle and self.loop.real > BUSY_SECONDS:
                hash_key = int(hash_key * (1 - self.shape.idle))
        parts, key = 0, self._key()
        data = self._data if data is None else data
        if self.user is not None and self.user.data is not None:
            data = self.user.data(self.produced)
        if self.random.random() < self.shape.aggregated:
            parts = self.random.randrange(1, 6)
            data = aggregate([UserRecord(data, key, str(hash_key))] * parts)
        shard_id, number = self.kinesis.put(name, data, key, hash_key)
        now = self.kinesis.clock.wall()
        places: list[tuple[str, int | None]] = [(number, None)]
        if parts:
            places = [(number, part) for part in range(parts)]
        self.produced += len(places)
        for app in self.apps:
            app.judge.produced(self.arn(name), shard_id, places, now)

    def _key(self) -> str:
        if self.shape.concurrency:
            return f"key-{self.random.randrange(KEYS)}"
        return "key"

    def put_everywhere(self) -> None:
        """Put a small record into each open shard."""
        for name in self.streams:
            for shard in self.kinesis.stream(name).open:
                self.put(name, shard.shard.first_hash, SMALL)

    async def produce(self) -> None:
        """Produce records at the shape's rate while ``producing``."""
        rate, draw = self.shape.records_per_second, self.random.random
        every = max(PRODUCE_SECONDS, 1 / rate)
        mean = rate * every / len(self.streams)
        while self.producing:
            for name in self.streams:
                for _ in range(int(2 * mean * draw() + draw())):
                    self.put(name)
            await asyncio.sleep(every)

    async def apply_retention(self) -> None:
        """Let records expire by their age while ``producing``."""
        while self.producing and (seconds := self.shape.retention_seconds):
            await asyncio.sleep(seconds / RETENTION_STEPS)
            for name in self.streams:
                self.expire(name, seconds)

    def split(self, name: str, shard_id: str) -> list[str]:
        """Split a shard."""
        children = self.kinesis.split(name, shard_id)
        self.judge.note("split", shard_id, children)
        self._tell_of_shards(name)
        return children

    def merge(self, name: str, shard_id: str, adjacent_id: str) -> str:
        """Merge two shards."""
        child = self.kinesis.merge(name, shard_id, adjacent_id)
        self.judge.note("merge", (shard_id, adjacent_id), child)
        self._tell_of_shards(name)
        return child

    def expire(self, name: str, seconds: float) -> None:
        """Let everything older than so many seconds expire."""
        before = self.kinesis.clock.wall() - seconds
        self.kinesis.expire(name, before)
        listed = self.kinesis.stream(name).shards
        for app in self.apps:
            app.judge.expired(self.arn(name), before, listed)
        self.judge.note("expire", name, f"{seconds:.0f} s")

    def _tell_of_shards(self, name: str) -> None:
        stream = self.kinesis.stream(name)
        for shard_id, made in stream.shards.items():
            if (stream.arn, shard_id) not in self.judge.shards:
                for app in self.apps:
                    app.judge.opened(stream.arn, shard_id, made.shard.parents)
