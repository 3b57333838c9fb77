"""Let tests write a trace of two machines and two shards, which is checked at once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Self

from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.rows import Key, Value
from kinesumer.model.streams import ShardKey
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.testing.memory import MemoryStore
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.base import ViolationError
from kinesumer.testing.simulation.invariants.checker import InvariantChecker

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
SHARDS = f"shard#app#{ARN}"
NEW: dict[str, Value] = {"epoch": 0, "ended": False, "start": "TRIM_HORIZON"}


class Trace:
    """Two machines, a parent shard with ten records, and its child with one.

    Session A runs on machine a, and session B on machine b, which operators use, too.
    Each method returns the trace, so that a test writes one as a chain of calls.
    """

    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(0))
        self.checker = InvariantChecker(self.loop, max_uncommitted_records=5)
        self.store = MemoryStore(self.loop.services)
        self.store.on_write.append(self.checker.applied)
        self.machines = {"A": self.loop.machine("a"), "B": self.loop.machine("b")}
        self.checker.seeks.operators.add(self.machines["B"])
        self.epochs: dict[tuple[str, str], int] = {}
        self.checker.opened(ARN, "parent", ())
        self.checker.opened(ARN, "child", ("parent",))
        numbers = [str(95 + index) for index in range(10)]
        self.checker.produced(ARN, "parent", [(n, None) for n in numbers], 1.0)
        self.checker.produced(ARN, "child", [("200", None)], 2.0)
        self.register("A").register("B")
        self.write(None, "parent", NEW).write(None, "child", NEW)

    def at(self, seconds: float) -> Self:
        self.loop.real = seconds
        return self

    def fine(self) -> Self:
        assert self.loop.halted is None
        return self

    # --- writes ---

    def apply(self, by: str | None, write: Write) -> Self:
        machine = None if by is None else self.machines[by]
        if machine is not None:
            self.checker.sent(machine, write)
            self.checker.writer = machine
        written = self.store.write_now(write)
        if machine is not None:
            self.checker.answered(machine, write, written)
        return self

    def write(
        self, by: str | None, shard: str, values: dict[str, Value], *remove: str
    ) -> Self:
        key = Key(SHARDS, f"0/{shard}")
        return self.apply(by, Write(key, AllOf(), values, remove))

    def register(
        self, session: str, client_id: str | None = None, by: str | None = None
    ) -> Self:
        values: dict[str, Value] = {
            "session": session,
            "beat": 0,
            "lease_ms": 8000,
            "dead": False,
            "streams": frozenset({ARN}),
        }
        key = Key("member#app", client_id or session.lower())
        return self.apply(by or session, Write(key, AllOf(), values, replace=True))

    def member(self, session: str, by: str | None = None, **values: Value) -> Self:
        condition = Compare("session", "=", session)
        write = Write(Key("member#app", session.lower()), condition, values)
        return self.apply(by or session, write)

    def claim(
        self,
        session: str,
        epoch: int,
        shard: str = "parent",
        by: str | None = None,
        deaths: dict[str, Value] | None = None,
    ) -> Self:
        self.epochs[session, shard] = epoch
        values = {"owner": session, "epoch": epoch, **(deaths or {})}
        return self.write(by or session, shard, values)

    def commit(self, number: int, by: str = "A") -> Self:
        return self.write(by, "parent", {"sequence_number": str(number)})

    def release(self, number: int, by: str = "A") -> Self:
        return self.write(by, "parent", {"sequence_number": str(number)}, "owner")

    def end(self, number: int = 104, by: str = "A") -> Self:
        values: dict[str, Value] = {"sequence_number": str(number), "ended": True}
        return self.write(by, "parent", values, "owner")

    def seek(
        self, epoch: int, to: int | None = None, shard: str = "parent", by: str = "B"
    ) -> Self:
        """Seek a shard to a position, or to its beginning."""
        values: dict[str, Value] = {"epoch": epoch, "ended": False}
        if to is not None:
            return self.write(by, shard, values | {"sequence_number": str(to)}, "claim")
        values["start"] = "TRIM_HORIZON"
        numbers = ("sequence_number", "sub_sequence_number")
        return self.write(by, shard, values, "claim", *numbers)

    # --- records ---

    def deliver(self, *numbers: int, by: str = "A", epoch: int | None = None) -> Self:
        for number in numbers:
            self.checker.delivered(self.machines[by], self.record(number, by, epoch))
        return self

    def process(self, first: int, last: int, by: str = "A") -> Self:
        """Deliver the records between two numbers (inclusive), and do them."""
        for number in range(first, last + 1):
            self.deliver(number, by=by)
            self.checker.done(self.record(number, by))
        return self

    def own(self, last: int) -> Self:
        """Let A claim the parent, and process its records through the last one."""
        return self.claim("A", 1).process(95, last)

    def record(self, number: int, by: str, epoch: int | None = None) -> Record:
        shard = "parent" if number < 200 else "child"
        epoch = epoch or self.epochs.get((by, shard), 1)
        source = Source(Fence(ShardKey(ARN, shard), epoch), 0, 9)
        return Record(str(number), b"", source=source)

    def expire(self, *more: int) -> Self:
        """Expire all records of the parent. Then it gets more of them."""
        self.checker.produced(ARN, "parent", [(str(n), None) for n in more], 9.0)
        self.checker.expired(ARN, 5.0, {"parent", "child"})
        return self


Play = Callable[[Trace], Trace]


def require_violation(play: Play, pattern: str) -> None:
    """Check that a trace violates a predicate, given with words of the message."""
    require_halt(play(Trace()), pattern)


def require_halt(trace: Trace, pattern: str) -> None:
    """Check that a trace has violated a predicate, given with words of the message."""
    error = trace.loop.halted
    assert isinstance(error, ViolationError), "nothing was violated"
    assert error.predicate == pattern.split()[0], error
    assert re.search(pattern, str(error)), error
