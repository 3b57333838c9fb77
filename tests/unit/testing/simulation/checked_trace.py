"""Let tests write a trace of two machines and two shards, which is checked at once."""

from __future__ import annotations

import random

from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.rows import Key, Value
from kinesumer.model.streams import ShardKey
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.testing.memory import MemoryStore
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.invariants.checker import InvariantChecker
from kinesumer.testing.simulation.machine import Machine

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
SHARDS = f"shard#app#{ARN}"
MEMBER: dict[str, Value] = {
    "beat": 0,
    "lease_ms": 8000,
    "dead": False,
    "streams": frozenset({ARN}),
}
NEW: dict[str, Value] = {"epoch": 0, "ended": False, "start": "TRIM_HORIZON"}


class Trace:
    """Two machines, a parent shard with ten records, and its child with one."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(0))
        self.checker = InvariantChecker(self.loop, max_uncommitted_records=5)
        self.store = MemoryStore(self.loop.services)
        self.store.on_write.append(self.checker.applied)
        self.a, self.b = self.loop.machine("a"), self.loop.machine("b")
        self.checker.opened(ARN, "parent", ())
        self.checker.opened(ARN, "child", ("parent",))
        numbers = [str(95 + index) for index in range(10)]
        self.checker.produced(ARN, "parent", [(n, None) for n in numbers], 1.0)
        self.checker.produced(ARN, "child", [("200", None)], 2.0)
        self.register(self.a, "A")
        self.register(self.b, "B")
        self.write(None, "parent", NEW)
        self.write(None, "child", NEW)

    def write(
        self,
        machine: Machine | None,
        shard: str,
        values: dict[str, Value],
        remove: tuple[str, ...] = (),
    ) -> None:
        self.apply(machine, Write(Key(SHARDS, f"0/{shard}"), AllOf(), values, remove))

    def member(
        self, machine: Machine, client_id: str, session: str, values: dict[str, Value]
    ) -> None:
        condition = Compare("session", "=", session)
        key = Key("member#app", client_id)
        self.apply(machine, Write(key, condition, values))

    def apply(self, machine: Machine | None, write: Write) -> None:
        if machine is not None:
            self.checker.sent(machine, write)
            self.checker.writer = machine
        written = self.store.write_now(write)
        if machine is not None:
            self.checker.answered(machine, write, written)

    def register(
        self, machine: Machine, session: str, client_id: str | None = None
    ) -> None:
        values = MEMBER | {"session": session}
        key = Key("member#app", client_id or machine.name)
        self.apply(machine, Write(key, AllOf(), values, replace=True))

    def claim(
        self, machine: Machine, session: str, epoch: int, shard: str = "parent"
    ) -> None:
        self.write(machine, shard, {"owner": session, "epoch": epoch})

    def record(self, number: int, epoch: int, shard: str = "parent") -> Record:
        fence = Fence(ShardKey(ARN, shard), epoch)
        return Record(str(number), b"", source=Source(fence, 0, 9))

    def deliver(self, machine: Machine, *numbers: int, epoch: int = 1) -> None:
        for number in numbers:
            self.checker.delivered(machine, self.record(number, epoch))

    def process(self, machine: Machine, *numbers: int, epoch: int = 1) -> None:
        for number in numbers:
            self.checker.delivered(machine, self.record(number, epoch))
            self.checker.done(self.record(number, epoch))

    def commit(self, machine: Machine, number: int) -> None:
        self.write(machine, "parent", {"sequence_number": str(number)})

    def release(self, machine: Machine, number: int) -> None:
        values: dict[str, Value] = {"sequence_number": str(number)}
        self.write(machine, "parent", values, ("owner",))

    def end(self, machine: Machine) -> None:
        values: dict[str, Value] = {"sequence_number": "104", "ended": True}
        self.write(machine, "parent", values, ("owner",))

    def die(self, session: str, client_id: str) -> None:
        self.member(self.b, client_id, session, {"dead": True})

    def leave(self, session: str, client_id: str) -> None:
        self.member(self.a, client_id, session, {"dead": True})

    def violates(self, predicate: str, words: str = "") -> None:
        error = self.loop.halted
        assert isinstance(error, ViolationError), "nothing was violated"
        assert error.predicate == predicate, error
        assert words in str(error)
