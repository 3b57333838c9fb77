"""Test that a bad trace violates each predicate of a KCL fleet, and a good one none.

Worker W is of the KCL, A and B are clients.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Self

import pytest

from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.rows import Key, Row, Value
from kinesumer.model.streams import ShardKey
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.testing.memory import MemoryStore
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.base import require_int
from kinesumer.testing.simulation.invariants.leases import ALL_PARTS, LeaseChecker
from tests.support.checked_trace import ARN, Trace, require_halt

PARENTS: dict[str, tuple[str, ...]] = {
    "one": (),
    "two": (),
    "three": (),
    "child": ("one", "two"),
    "orphan": ("three",),
}
NEW: dict[str, Value] = {
    "leaseCounter": 0,
    "checkpoint": "TRIM_HORIZON",
    "checkpointSubSequenceNumber": 0,
}
END: dict[str, Value] = {"checkpoint": "SHARD_END"}


class FleetTrace(Trace):
    """Three workers and some shards, with records 10 to 13 in the first one."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(Random(0))
        self.checker: LeaseChecker = LeaseChecker(self.loop, 3)
        self.store = MemoryStore(self.loop.services)
        self.store.on_write.append(self.checker.applied)
        self.machines = {name: self.loop.machine(name) for name in "WAB"}
        for shard_id, parents in PARENTS.items():
            self.checker.opened(ARN, shard_id, parents)
            self.checker.lease_places[shard_id] = ARN, shard_id
        self.checker.produced(ARN, "one", [(str(n), None) for n in range(10, 14)], 0.0)
        self.checker.produced(ARN, "two", [("20", 0), ("20", 1)], 0.0)
        self.register("A").register("B").create("one").create("two")

    def create(self, key: str, **values: Value) -> Self:
        return self.apply("W", Write(Key("lease", key), AllOf(), NEW | values))

    def change(self, by: str, key: str, values: Row, *gone: str) -> Self:
        """Let a worker write to a lease, by default with the next counter."""
        (lease,) = (row for row in self.store.rows("lease") if row["sk"] == key)
        counter = require_int(lease["leaseCounter"])
        values = {"leaseCounter": counter + 1, **values}
        if by != "W" and not gone:
            values["kinesumer_counter"] = values["leaseCounter"]
        condition = Compare("leaseCounter", "=", counter)
        return self.apply(by, Write(Key("lease", key), condition, values, gone))

    def take(self, by: str, key: str = "one", epoch: int = 1, **values: Value) -> Self:
        """Let a worker take a lease; a client in an epoch."""
        if by != "W":
            values |= {"kinesumer_owner": by, "kinesumer_owner_id": by}
            values |= {"kinesumer_epoch": epoch}
        return self.change(by, key, {"leaseOwner": by, **values})

    def delete(self, key: str) -> Self:
        return self.apply("W", Write(Key("lease", key), AllOf(), delete=True))

    def work(self, *numbers: int) -> Self:
        """Let the KCL worker process records of the first shard."""
        for number in numbers:
            self.checker.processed("one", (str(number), None))
        return self

    def consume(self, by: str, number: int, epoch: int = 1) -> Self:
        """Let a client process a record of the first shard."""
        source = Source(Fence(ShardKey(ARN, "one"), epoch), 0, 9)
        record = Record(str(number), b"", source=source)
        self.checker.delivered(self.machines[by], record)
        self.checker.done(record)
        return self

    def store_place(self, by: str, number: int, sub: int = 0) -> Self:
        values: Row = {"checkpoint": str(number), "checkpointSubSequenceNumber": sub}
        return self.change(by, "one", values)

    def beat(self, seconds: float) -> Self:
        """Let A send a heartbeat, which is valid for six seconds."""
        return self.at(seconds).member("A", beat=1, lease_ms=8000)


Play = Callable[[FleetTrace], FleetTrace]


def half_an_aggregate(trace: FleetTrace) -> FleetTrace:
    trace.take("W", "two").checker.processed("two", ("20", 0))
    values: Row = {"checkpoint": "20", "checkpointSubSequenceNumber": 1}
    return trace.change("W", "two", values)


def begin_child(trace: FleetTrace) -> FleetTrace:
    trace.create("child").checker.begins("child")
    return trace


def finish(trace: FleetTrace) -> FleetTrace:
    """Let W process the first shard to its end."""
    return trace.take("W").work(10, 11, 12, 13).change("W", "one", END)


def finish_both(trace: FleetTrace) -> FleetTrace:
    for part in (0, 1):
        trace.checker.processed("two", ("20", part))
    return finish(trace).take("W", "two").change("W", "two", END)


# By the predicate and words of the message.
BAD: dict[str, Play] = {
    "I1 .* position goes back": lambda t: (
        t.take("W").work(10, 11).store_place("W", 11).store_place("W", 10)
    ),
    "I1 .* end is undone": lambda t: finish(t).store_place("W", 13),
    "I1 .* deleted before its end": lambda t: t.take("W").delete("one"),
    "I1 .* deleted before child has begun": lambda t: (
        finish(t).create("child").delete("one")
    ),
    "I1 .* created again": lambda t: (
        begin_child(finish_both(t))
        .take("W", "child")
        .change("W", "child", END)
        .delete("one")
        .create("one")
    ),
    "I1 .* is created as": lambda t: t.create("child", leaseOwner="W"),
    "I2 .* passes record 1": lambda t: t.take("W").work(10).store_place("W", 11),
    "I2 .* two: .* passes record 1": half_an_aggregate,
    "I2 .* checkpoint passes record 2": lambda t: (
        t.take("W").work(10, 11).change("W", "one", END)
    ),
    # Three quarters of the failover time after the write was sent.
    "I3 at 7.600 .* after its last moment": lambda t: (
        t.take("A").consume("A", 10).beat(5.0).at(7.6).consume("A", 11)
    ),
    "I3 at 6.100 .* after its last moment": lambda t: (
        t.take("A").at(6.1).consume("A", 10)
    ),
    "I4 .* counter of one grows by 0": lambda t: t.take("W", leaseCounter=0),
    "I4 .* W gives one to B": lambda t: t.change("W", "one", {"leaseOwner": "B"}),
    "I5 .* B stores a checkpoint": lambda t: (
        t.take("A").consume("A", 10).store_place("B", 10)
    ),
    "I5 .* B writes to the lease": lambda t: t.take("A").change("B", "one", {}),
    "I5 .* B releases the lease": lambda t: t.take("A").change(
        "B", "one", {}, "leaseOwner"
    ),
    # The worker has renewed its only lease.
    "I6 .* B takes one from W, which has renewed it 9.0 s ago": lambda t: (
        t.take("W").at(9.0).take("B")
    ),
    "I6 .* W takes one from A, which has renewed it 9.0 s ago": lambda t: (
        t.take("A").at(9.0).take("W")
    ),
    "I6 .* is taken from A, not dead": lambda t: (
        t.take("A").at(20.0).take("B", epoch=2)
    ),
    "I8 .* created before that of its parent three": lambda t: t.create("orphan"),
    "I8 .* child delivers before two ended": lambda t: begin_child(finish(t)),
    "I10 .* releases one at record 0, but 1 are done": lambda t: (
        t.take("A").consume("A", 10).change("A", "one", {}, "leaseOwner")
    ),
    "I10 .* one: 4 records are delivered again": lambda t: (
        t.take("W").work(10, 11, 12, 13).at(30.0).take("A").at(60.0).take("W")
    ),
}
GOOD: dict[str, Play] = {
    "a worker takes what was silent for the failover time": lambda t: (
        t.take("W").at(10.0).take("B")
    ),
    "a worker steals from one that has more": lambda t: (
        t.take("W").take("W", "two").at(1.0).take("A").consume("A", 10)
    ),
    "a former owner delivers for a part of the failover time": lambda t: (
        t.take("A").take("A", "two").beat(1.0).take("W").at(6.9).consume("A", 10)
    ),
    "a client goes on after a whole record": lambda t: (
        t.take("A")
        .consume("A", 10)
        .store_place("A", 10, ALL_PARTS)
        .at(1.0)
        .consume("A", 11)
    ),
    "part 0 of a plain record is all of it": lambda t: (
        t.take("W")
        .take("W", "two")
        .work(10)
        .store_place("W", 10)
        .take("A")
        .consume("A", 11)
    ),
    "a client takes the lease of one that is dead": lambda t: (
        t.take("A").at(9.0).member("A", "B", dead=True).take("B", epoch=2)
    ),
    "anybody tells the children of a shard": lambda t: t.take("W").change(
        "W", "one", {"leaseCounter": 1, "childShardIds": frozenset({"child"})}
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_trace_violates_a_predicate(message: str) -> None:
    require_halt(BAD[message](FleetTrace()), message)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_trace_violates_none(name: str) -> None:
    assert GOOD[name](FleetTrace()).loop.halted is None
