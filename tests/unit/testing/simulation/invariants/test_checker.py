"""Test that each invariant is violated by a bad trace, and by no good one."""

from __future__ import annotations

import pytest

from kinesumer.model.rows import Key, Value
from kinesumer.ports import AllOf, Compare, Write
from kinesumer.testing.simulation.invariants.base import ViolationError
from tests.support.checked_trace import (
    SHARDS,
    Play,
    Trace,
    require_violation,
)

PARENT = Key(SHARDS, "0/parent")
BEAT = Write(Key("member#app", "a"), Compare("session", "=", "A"), {"beat": 1})
LATE_RELEASE = Write(
    PARENT, AllOf(Compare("epoch", "=", 1)), {"sequence_number": "95"}, ("owner",)
)


def send(trace: Trace, write: Write) -> Trace:
    """Let machine a send a write that the store doesn't apply yet."""
    trace.checker.sent(trace.machines["A"], write)
    return trace


def taken(trace: Trace, deaths: dict[str, Value] | None = None) -> Trace:
    """Let B take the shard of A, which has died."""
    trace.at(5.0).member("B", beat=1, lease_ms=8000)
    return trace.at(7.0).member("A", "B", dead=True).claim("B", 2, deaths=deaths)


TRIED: dict[str, Value] = {"deaths": 4, "suspect": "95"}
NAMED: dict[str, Value] = {"deaths": 5, "suspect": "95", "poison": "95"}


def taken_twice(trace: Trace) -> Trace:
    """Let C take the shard of B, which has died, and let C name the first record."""
    trace.at(8.0).register("C", by="A").machines["C"] = trace.machines["A"]
    trace.at(13.0).member("B", "C", dead=True)
    return trace.claim("C", 3, deaths=NAMED)


def by_key(trace: Trace) -> Trace:
    trace.checker.is_by_key = True
    return trace


def epoch_goes_back(trace: Trace) -> Trace:
    trace.write("A", "parent", {"epoch": 3}).loop.halted = None
    return trace.write("A", "parent", {"epoch": 2})


def early_claim(trace: Trace) -> Trace:
    trace.claim("A", 1).at(5.0).checker.dead["A"] = 5.0
    return trace.claim("B", 2)


# By the predicate and words of the message.
BAD: dict[str, Play] = {
    "I1 .* position goes back": lambda t: t.own(100).commit(100).commit(99),
    "I1 .* epoch goes back": epoch_goes_back,
    "I1 .* end is undone": lambda t: (
        t.own(104).end().write("A", "parent", {"ended": False})
    ),
    "I1 .* pruned without having ended": lambda t: t.apply(
        "A", Write(PARENT, AllOf(), delete=True)
    ),
    "I1 .* claimed after its end": lambda t: t.own(104).end().claim("B", 2),
    "I2 .* passes record 2": lambda t: t.own(96).deliver(97).commit(97),
    "I2 .* ends, but record 1": lambda t: t.own(95).end(95),
    "I3 at 6.100 .* after its last moment": lambda t: (
        t.claim("A", 1).at(5.9).deliver(95).fine().at(6.1).deliver(96)
    ),
    # The lease counts from a heartbeat's first attempt.
    "I3 at 8.100 .* after its last moment": lambda t: (
        send(t.claim("A", 1).at(2.0), BEAT)
        .at(5.0)
        .apply("A", BEAT)
        .at(7.9)
        .deliver(95)
        .fine()
        .at(8.1)
        .deliver(96)
    ),
    "I3 .* belongs to B 2": lambda t: (
        t.claim("A", 1).release(94).claim("B", 2).deliver(95)
    ),
    "I4 .* never claimed": lambda t: t.claim("A", 1).deliver(95, by="B"),
    "I4 .* claimed out of turn": lambda t: t.claim("A", 2),
    "I4 .* by another": lambda t: t.claim("B", 1, by="A"),
    "I5 .* a changes parent of B": lambda t: (
        t.own(95).release(95).claim("B", 2).process(96, 96, by="B").commit(96)
    ),
    "I5 .* same epoch": lambda t: t.claim("A", 1).write("A", "parent", {"owner": "B"}),
    "I6 .* not dead": lambda t: t.claim("A", 1).claim("B", 2),
    "I6 .* 1.000 s before": early_claim,
    "I8 .* before parent ended": lambda t: t.claim("A", 1, "child").deliver(200),
    "I9 .* record 2, but 1 is next": lambda t: t.claim("A", 1).deliver(95, 97),
    "I9 .* record 0, but 2 is next": lambda t: t.claim("A", 1).deliver(95, 96, 95),
    # Records without a key have no order, but come once.
    "I9 .* record 1, but 2 is next": lambda t: (
        by_key(t).claim("A", 1).deliver(95, 97, 96).fine().deliver(96)
    ),
    "I10 .* 6 records": lambda t: taken(t.claim("A", 1).deliver(*range(95, 101))),
    "I16 .* record 95 killed no process": lambda t: taken(
        t.claim("A", 1).deliver(95), NAMED
    ),
    # The second owner was done with the record when it died.
    "I16 .* killed no process, but is named": lambda t: taken_twice(
        taken(t.claim("A", 1).deliver(95), TRIED).process(95, 95, by="B").fine()
    ),
    "I10 .* at record 1, but 2 are done": lambda t: t.own(96).release(95),
    # A late attempt to release an earlier epoch gives nothing up.
    "I10 .* at record 2, but 3 are done": lambda t: (
        send(
            t.own(95).release(95).claim("A", 2).process(96, 97),
            LATE_RELEASE,
        )
        .fine()
        .release(96)
    ),
}


@pytest.mark.parametrize(("violation", "play"), BAD.items(), ids=BAD)
def test_a_bad_trace_violates(violation: str, play: Play) -> None:
    require_violation(play, violation)


def test_a_life_in_good_order_violates_nothing() -> None:
    trace = Trace().own(97).commit(96).release(97)
    trace.claim("B", 2).process(98, 104, by="B").end(by="B")
    trace.claim("A", 1, "child").deliver(200).fine()
    assert (trace.checker.handovers, trace.checker.redelivered) == (1, 0)


def test_a_claim_after_the_last_permitted_moment_is_a_takeover() -> None:
    assert taken(Trace().claim("A", 1)).fine().checker.takeovers == 1


def test_a_record_that_two_owners_tried_when_they_died_may_be_named() -> None:
    trace = taken(Trace().claim("A", 1).deliver(95), TRIED).fine()
    # The row names the record before user code gets the record.
    taken_twice(trace.write("B", "parent", {"tried": "95"})).fine()


def test_what_has_expired_may_be_skipped_and_is_not_repeated() -> None:
    Trace().expire(105).claim("A", 1).deliver(105).fine()
    taken(Trace().claim("A", 1).deliver(*range(95, 101)).expire()).fine()


def test_the_first_violation_stops_the_run() -> None:
    trace = Trace()

    async def main() -> None:
        trace.deliver(95, by="B")
        await trace.loop.create_future()

    with pytest.raises(ViolationError, match="I4 at 0"):
        trace.loop.run(main())
