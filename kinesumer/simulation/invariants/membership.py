"""What the judge says of members and leaders: who may write what to whose row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.simulation.invariants.permits import TOLERANCE, number, plan_of
from kinesumer.simulation.invariants.plans import Plans

if TYPE_CHECKING:
    from kinesumer.model.rows import Row
    from kinesumer.ports import Write
    from kinesumer.simulation.invariants.checker import Judge


class Membership:
    """Checks I6, I7, I11 and I12 at each write to rows of members and the leader."""

    def __init__(self, judge: Judge, assignor: str) -> None:
        self._judge = judge
        self._plans = Plans(judge, assignor)
        self._leaders: dict[int, str] = {}
        """The session of each leader epoch."""

    def member_write(self, write: Write, before: Row | None, after: Row | None) -> None:
        """A member's row was written."""
        judge = self._judge
        if before is not None:
            self._check_dead_stays(before, after)
        if after is None:
            return
        session = str(after["session"])
        if "session" in write.set:
            judge.pauses.registered(session)
        if after.get("dead") is True:
            if session not in judge.dead:
                self._check_death(session)
            judge.dead.setdefault(session, judge.loop.real)
        elif session in judge.dead:
            judge.fail("I7", f"session {session} of {after['sk']} rises from the dead")
        if before is not None and "plan_version" in write.set:
            self._check_plan(before, after)
        elif before is not None and "beat" in write.set:
            self._check_beat(session, before, after)

    def _check_death(self, session: str) -> None:
        """Others may declare a session dead only when its last moment has passed."""
        judge = self._judge
        early = judge.permits.left(session)
        if not self._writes_for(session) and early > TOLERANCE:
            judge.fail(
                "I6",
                f"session {session} is declared dead {early:.3f} s before its last "
                "moment",
            )

    def _check_beat(self, session: str, before: Row, after: Row) -> None:
        """Only a session itself counts its beats, and only forward.

        An observer takes a beat that it saw before for one that hasn't changed.
        """
        if session != before["session"]:
            return
        if not self._writes_for(session):
            self._judge.fail("I6", f"another beats in the name of session {session}")
        if number(after["beat"]) < number(before["beat"]):
            self._judge.fail(
                "I6",
                f"the beat of session {session} goes back from {before['beat']} "
                f"to {after['beat']}",
            )

    def _check_plan(self, before: Row, after: Row) -> None:
        plan = plan_of(after)
        if plan <= plan_of(before):
            self._judge.fail("I11", f"{after['sk']} goes back to plan {plan}")
        leader = self._leaders.get(plan[0])
        if leader is not None and not self._writes_for(leader):
            self._judge.fail("I11", f"plan {plan} isn't of the one who leads: {leader}")
        self._plans.assigned(after)

    def _writes_for(self, session: str) -> bool:
        machine = self._judge.permits.machines.get(session)
        return machine is not None and machine is self._judge.writer

    def _check_dead_stays(self, before: Row, after: Row | None) -> None:
        judge, was_dead = self._judge, before.get("dead") is True
        if after is None:
            if not was_dead:
                judge.fail("I7", f"{before['sk']} is deleted alive")
        elif after["session"] == before["session"]:
            if was_dead and after.get("dead") is not True:
                judge.fail("I7", f"session {before['session']} rises from the dead")
        elif not was_dead:
            judge.fail("I7", f"{before['sk']} is replaced alive")

    def leader_write(self, write: Write, before: Row | None, after: Row | None) -> None:
        """The leader's row was written."""
        judge = self._judge
        if after is None:
            judge.fail("I11", "the leader row is deleted")
            return
        epoch, session = number(after["leader_epoch"]), str(after["session"])
        if self._leaders.setdefault(epoch, session) != session:
            judge.fail("I11", f"leader epoch {epoch} belongs to two sessions")
        if not self._writes_for(session):
            judge.fail("I11", f"another writes as leader in place of {session}")
        if before is not None:
            if epoch < number(before["leader_epoch"]):
                judge.fail("I11", f"leader epoch goes back to {epoch}")
            previous = str(before["session"])
            if previous != session and previous not in judge.dead:
                judge.fail("I11", f"{session} leads in place of {previous}, not dead")
