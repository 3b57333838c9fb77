"""Check what members, leaders and operators write to the state store."""

from __future__ import annotations

from itertools import count

from kinesumer.model.rows import Row
from kinesumer.model.streams import HASH_KEYS
from kinesumer.ports import Write
from kinesumer.testing.kinesis.limits import TICK
from kinesumer.testing.simulation.invariants.base import (
    Checker,
    ShardTrace,
    require_int,
)
from kinesumer.testing.simulation.machine import Machine

# A part of a range: the stream's ARN, and the first and last hash key.
Part = tuple[str, int, int]


def parse_ranges(row: Row) -> list[Part]:
    """Return the parts of the range that a member's row holds, sorted."""
    streams = row["streams"]
    assert isinstance(streams, frozenset)
    arns, parts = sorted(streams), []
    for part in filter(None, str(row.get("range", "")).split(",")):
        index, _, ends = part.partition(":")
        first, _, last = ends.partition("-")
        end = int(last, 16) if last else HASH_KEYS - 1
        parts.append((arns[int(index)], int(first, 16), end))
    return sorted(parts)


def plan_id(row: Row) -> tuple[int, int]:
    """Return the leader epoch and the version of the plan that a row carries."""
    epoch, version = row.get("leader_epoch", 0), row.get("plan_version", 0)
    return require_int(epoch), require_int(version)


class Membership:
    """Checks each write to the row of a member or of the leader (I6, I7, I11, I12)."""

    def __init__(self, checker: Checker, pauses: Pauses) -> None:
        self._checker = checker
        self._pauses = pauses
        self._leaders: dict[int, str] = {}  # the session of each leader epoch
        # The parts that each plan has given, and to which clients.
        self._parts: dict[tuple[int, int], list[tuple[Part, object]]] = {}

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
            checker.dead.setdefault(session, checker.loop.real)
        elif session in checker.dead:
            self._lives_again(session)
        if before is not None and "plan_version" in write.set:
            self._check_plan(before, after)
        elif before is not None and "beat" in write.set:
            self._check_beat(session, before, after)

    def _check_death(self, session: str) -> None:
        """Check that others declare a session dead only after its lease (I6)."""
        early = self._checker.leases.remaining_seconds(session)
        if not self._checker.is_written_by(session) and early > TICK:
            text = f"is declared dead {early:.3f} s before its last moment"
            self._checker.fail("I6", f"session {session} {text}")

    def _check_beat(self, session: str, before: Row, after: Row) -> None:
        """Check that a heartbeat count never falls, and that its session wrote it.

        Otherwise an observer may mistake a new heartbeat for an old one.
        """
        checker, old, new = self._checker, before["beat"], after["beat"]
        if session != before["session"]:
            return
        if not checker.is_written_by(session):
            checker.fail("I6", f"another beats in the name of session {session}")
        if require_int(new) < require_int(old):
            text = f"goes back from {old} to {new}"
            checker.fail("I6", f"the beat of session {session} {text}")

    def _check_plan(self, before: Row, after: Row) -> None:
        checker, plan = self._checker, plan_id(after)
        if plan <= plan_id(before):
            checker.fail("I11", f"{after['sk']} goes back to plan {plan}")
        leader = self._leaders.get(plan[0])
        if leader is not None and not checker.is_written_by(leader):
            checker.fail("I11", f"plan {plan} is not of the leader {leader}")
        self._check_ranges(plan, after)

    def _check_ranges(self, plan: tuple[int, int], row: Row) -> None:
        """Check that the ranges of one plan don't overlap (I12).

        ``convergence`` checks the rest of I12 when all members have their ranges.
        """
        parts, name = parse_ranges(row), f"plan {plan[0]}.{plan[1]}: {row['sk']}"
        if len(parts) > len({arn for arn, *_ in parts}):
            self._checker.fail("I12", f"{name} has a range that isn't contiguous")
        known = self._parts.setdefault(plan, [])
        for part in parts:
            for other, client_id in known:
                if part[0] == other[0] and part[1] <= other[2] and other[1] <= part[2]:
                    self._checker.fail("I12", f"{name} shares {part} with {client_id}")
            known.append((part, row["sk"]))

    def _check_dead_stays(self, before: Row, after: Row | None) -> None:
        was_dead = before.get("dead") is True
        if after is None:
            if not was_dead:
                self._checker.fail("I7", f"{before['sk']} is deleted alive")
        elif after["session"] == before["session"]:
            if was_dead and after.get("dead") is not True:
                self._lives_again(before["session"])
        elif not was_dead:
            self._checker.fail("I7", f"{before['sk']} is replaced alive")

    def _lives_again(self, session: object) -> None:
        self._checker.fail("I7", f"session {session} lives again after its death")

    def leader_write(self, _: Write, before: Row | None, after: Row | None) -> None:
        """Check a write to the leader's row."""
        checker = self._checker
        if after is None:
            checker.fail("I11", "the leader row is deleted")
            return
        epoch, session = require_int(after["leader_epoch"]), str(after["session"])
        if self._leaders.setdefault(epoch, session) != session:
            checker.fail("I11", f"leader epoch {epoch} belongs to two sessions")
        if not checker.is_written_by(session):
            checker.fail("I11", f"another writes as leader in place of {session}")
        if before is not None:
            if plan_id(after) < plan_id(before):
                checker.fail("I11", f"the leader's row goes back to {plan_id(after)}")
            previous = str(before["session"])
            if previous != session and previous not in checker.dead:
                checker.fail("I11", f"{session} leads in place of {previous}, not dead")


class Pauses:
    """Checks at each claim that the shard isn't paused (I14).

    A pause of a stream or of the whole app binds only sessions that began after it.
    """

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        # The time at which each session was registered.
        self._began: dict[str, float] = {}
        # The start time of each pause, by stream ARN ("" for all streams).
        self._since: dict[str, float] = {}

    @property
    def is_any(self) -> bool:
        """True if a stream or the whole app is paused."""
        return bool(self._since)

    def registered(self, session: str) -> None:
        """Record that a session began."""
        self._began[session] = self._checker.loop.real

    def group_write(self, _: Write, _before: Row | None, after: Row | None) -> None:
        """Record whether the row of the group or of a stream says that it is paused."""
        if after is None:
            return
        arn = str(after["sk"]).partition("#")[2]
        if after.get("paused") is True:
            self._since.setdefault(arn, self._checker.loop.real)
        else:
            self._since.pop(arn, None)

    def check_claim(self, before: Row, session: str) -> None:
        """Check that a claimed shard isn't paused."""
        name = f"{before['sk']} is claimed by {session}"
        if before.get("paused") is True:
            self._checker.fail("I14", f"{name}, but paused")
        for arn in ("", str(before["pk"]).split("#", 2)[2]):
            since = self._since.get(arn)
            if since is not None and self._began.get(session, since) > since:
                self._checker.fail("I14", f"{name}, which began after its pause")


class Seeks:
    """Checks the writes of seeks (I1, I4), and records the order of all seeks."""

    def __init__(self, checker: Checker) -> None:
        self.operators: set[Machine] = set()
        self._checker = checker
        self._numbers = count(1)

    def created(self, trace: ShardTrace, row: Row) -> None:
        """Record a seek if an operator created the row of a shard."""
        writer = self._checker.writer
        if writer is not None and writer in self.operators:
            first, epoch = trace.first_of(row), require_int(row["epoch"])
            trace.seek(first, epoch, writer.name, next(self._numbers))

    def is_seek(self, write: Write) -> bool:
        """Return True if a write to a shard's row is a seek."""
        return "epoch" in write.set and "claim" in write.remove

    def seeked(self, trace: ShardTrace, before: Row, after: Row) -> None:
        """Check a write by which an operator moved a shard's position."""
        checker, epoch = self._checker, require_int(after["epoch"])
        name = trace.shard_id
        operator = checker.writer.name if checker.writer else "an unknown machine"
        if checker.writer not in self.operators:
            checker.fail("I1", f"{operator} seeks {name} and is not an operator")
        if epoch != require_int(before["epoch"]) + 1:
            checker.fail("I4", f"{name}: epoch {epoch} is seeked out of turn")
        if after.get("owner") != before.get("owner"):
            checker.fail("I4", f"{name}: a seek changes its owner")
        if after["ended"]:
            checker.fail("I1", f"{name} is seeked and still has ended")
        number = next(self._numbers)
        if before["ended"]:
            trace.reopened, trace.ended_at = (operator, number), None
        trace.seek(trace.first_of(after), epoch, operator, number)
