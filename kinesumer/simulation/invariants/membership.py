"""Rules for rows of members and of the leader, and for the plans that these carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.model.streams import HASH_KEYS
from kinesumer.simulation.invariants.leases import TOLERANCE, plan_id, require_int

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.simulation.invariants.base import Checker
    from kinesumer.simulation.invariants.operations import Pauses

Part = tuple[str, int, int]
"""Stream ARN, first and last hash key."""
MAX_PLANS = 50


def parse_ranges(row: Row) -> list[Part]:
    """Return the range that a member's row holds, in order."""
    streams = row["streams"]
    assert isinstance(streams, frozenset)
    arns, parts = sorted(streams), []
    for part in filter(None, str(row.get("range", "")).split(",")):
        place, _, ends = part.partition(":")
        first, _, last = ends.partition("-")
        end = int(last, 16) if last else HASH_KEYS - 1
        parts.append((arns[int(place)], int(first, 16), end))
    return sorted(parts)


class Plans:
    """Checks I12 at each assignment: the parts of a plan don't overlap.

    ``convergence`` checks the rest of I12 when all parts have arrived.
    """

    def __init__(self, checker: Checker, assignor: str) -> None:
        self._checker = checker
        self._assignor = assignor
        self._parts: dict[tuple[int, int], list[tuple[Part, object]]] = {}

    def assigned(self, row: Row) -> None:
        """Check a member's part of a plan."""
        plan, given = plan_id(row), parse_ranges(row)
        if self._assignor == "range" and len(given) > len({arn for arn, *_ in given}):
            self._fail(plan, row["sk"], "has a range that isn't contiguous")
        if plan not in self._parts and len(self._parts) == MAX_PLANS:
            del self._parts[next(iter(self._parts))]
        known = self._parts.setdefault(plan, [])
        for part in given:
            for other, client_id in known:
                if part[0] == other[0] and part[1] <= other[2] and other[1] <= part[2]:
                    self._fail(plan, row["sk"], f"shares {part} with {client_id}")
            known.append((part, row["sk"]))

    def _fail(self, plan: tuple[int, int], client_id: object, what: str) -> None:
        self._checker.fail("I12", f"plan {plan[0]}.{plan[1]}: {client_id} {what}")


class Membership:
    """Checks I6, I7, I11 and I12 at each write to rows of members and the leader."""

    def __init__(self, checker: Checker, assignor: str, pauses: Pauses) -> None:
        self._checker = checker
        self._plans = Plans(checker, assignor)
        self._pauses = pauses
        self._leaders: dict[int, str] = {}
        """The session of each leader epoch."""

    def member_write(self, write: Write, before: Row | None, after: Row | None) -> None:
        """Check a write to a member's row."""
        checker = self._checker
        if before is not None:
            self._check_dead_stays(before, after)
        if after is None:
            return
        session = str(after["session"])
        if "session" in write.set:
            self._pauses.registered(session)
        if after.get("dead") is True:
            if session not in checker.dead:
                self._check_death(session)
            checker.dead.setdefault(session, checker.now)
        elif session in checker.dead:
            checker.fail(
                "I7", f"session {session} of {after['sk']} lives again after its death"
            )
        if before is not None and "plan_version" in write.set:
            self._check_plan(before, after)
        elif before is not None and "beat" in write.set:
            self._check_beat(session, before, after)

    def _check_death(self, session: str) -> None:
        """Check that others declare a session dead only after its lease (I6)."""
        checker = self._checker
        early = checker.leases.remaining_seconds(session)
        if not self._writes_for(session) and early > TOLERANCE:
            checker.fail(
                "I6",
                f"session {session} is declared dead {early:.3f} s before its last "
                "moment",
            )

    def _check_beat(self, session: str, before: Row, after: Row) -> None:
        """Check that only a session itself counts its heartbeats, and only forward.

        Otherwise an observer may mistake a new heartbeat for an old one.
        """
        if session != before["session"]:
            return
        if not self._writes_for(session):
            self._checker.fail("I6", f"another beats in the name of session {session}")
        if require_int(after["beat"]) < require_int(before["beat"]):
            self._checker.fail(
                "I6",
                f"the beat of session {session} goes back from {before['beat']} "
                f"to {after['beat']}",
            )

    def _check_plan(self, before: Row, after: Row) -> None:
        plan = plan_id(after)
        if plan <= plan_id(before):
            self._checker.fail("I11", f"{after['sk']} goes back to plan {plan}")
        leader = self._leaders.get(plan[0])
        if leader is not None and not self._writes_for(leader):
            self._checker.fail("I11", f"plan {plan} is not of the leader {leader}")
        self._plans.assigned(after)

    def _writes_for(self, session: str) -> bool:
        machine = self._checker.leases.machines.get(session)
        return machine is not None and machine is self._checker.writer

    def _check_dead_stays(self, before: Row, after: Row | None) -> None:
        checker, was_dead = self._checker, before.get("dead") is True
        if after is None:
            if not was_dead:
                checker.fail("I7", f"{before['sk']} is deleted alive")
        elif after["session"] == before["session"]:
            if was_dead and after.get("dead") is not True:
                checker.fail(
                    "I7", f"session {before['session']} lives again after its death"
                )
        elif not was_dead:
            checker.fail("I7", f"{before['sk']} is replaced alive")

    def leader_write(self, write: Write, before: Row | None, after: Row | None) -> None:
        """Check a write to the leader's row."""
        checker = self._checker
        if after is None:
            checker.fail("I11", "the leader row is deleted")
            return
        epoch, session = require_int(after["leader_epoch"]), str(after["session"])
        if self._leaders.setdefault(epoch, session) != session:
            checker.fail("I11", f"leader epoch {epoch} belongs to two sessions")
        if not self._writes_for(session):
            checker.fail("I11", f"another writes as leader in place of {session}")
        if before is not None:
            if epoch < require_int(before["leader_epoch"]):
                checker.fail("I11", f"leader epoch goes back to {epoch}")
            previous = str(before["session"])
            if previous != session and previous not in checker.dead:
                checker.fail("I11", f"{session} leads in place of {previous}, not dead")
