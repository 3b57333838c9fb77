"""Until when each session may deliver: what its machine sent, what was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ports import AllOf, Compare

if TYPE_CHECKING:
    from kinesumer.model.rows import Row, Value
    from kinesumer.ports import Condition, Write, WriteResult
    from kinesumer.simulation.machine import Machine

TOLERANCE = 1e-6
SAFE_LEASE_SHARE = 0.75
"""Share of its lease for which a session may deliver after a beat it sent."""


class SessionLeases:
    """Counted from the first try of each beat that was answered.

    A session's clock is its computer's, true and whatever the client makes of it.
    """

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        """The machine that registered each session."""
        self._until: dict[str, float] = {}
        self._first_sent: dict[str, dict[int, float]] = {}
        """By session and beat, until its answer arrives."""
        self._answered: dict[str, int] = {}

    def remaining_seconds(self, session: str) -> float:
        """Return for how many seconds of its own a session may still deliver."""
        machine = self.machines.get(session)
        if machine is None:
            return 0.0
        return self._until[session] - machine.now()

    def sent(self, machine: Machine, write: Write) -> None:
        """A machine tries to write a member row."""
        session = str(write.set.get("session") or named_session(write.condition))
        now = machine.now()
        if "session" in write.set:
            self.machines[session] = machine
            # Tried again, it is permitted from the first try on.
            if session not in self._until:
                self._extend(session, now, write.set["lease_ms"])
        elif write.set.get("dead") is True:
            # Whoever declares itself dead gives its shards up before.
            if self.machines.get(session) is machine:
                self._until[session] = min(self._until[session], now)
        elif "beat" in write.set:
            beat = require_int(write.set["beat"])
            if beat > self._answered.get(session, 0):
                self._first_sent.setdefault(session, {}).setdefault(beat, now)

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        """An answer reached its machine: a beat's extends what it may do."""
        if not written.applied or written.row is None or "beat" not in write.set:
            return
        session = str(written.row["session"])
        if self.machines.get(session) is not machine:
            return
        beat, tries = require_int(write.set["beat"]), self._first_sent.get(session, {})
        if beat in tries:
            self._extend(session, tries[beat], written.row["lease_ms"])
            self._answered[session] = beat
            for earlier in [known for known in tries if known <= beat]:
                del tries[earlier]

    def _extend(self, session: str, sent: float, lease_ms: Value) -> None:
        until = sent + SAFE_LEASE_SHARE * require_int(lease_ms) / 1000
        self._until[session] = max(until, self._until.get(session, 0.0))


def require_int(value: Value | None) -> int:
    """Return an attribute that is a number."""
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def plan_id(row: Row) -> tuple[int, int]:
    """Return the plan that a member row carries."""
    return require_int(row.get("leader_epoch", 0)), require_int(
        row.get("plan_version", 0)
    )


def named_session(condition: Condition) -> str:
    """Return the session that a write's condition names."""
    if isinstance(condition, Compare):
        is_session = condition.attribute == "session" and condition.op == "="
        return str(condition.value) if is_session else ""
    parts = condition.parts if isinstance(condition, AllOf) else ()
    return next(filter(None, map(named_session, parts)), "")
