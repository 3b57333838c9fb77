"""The leases of sessions: until when each session may deliver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ports import AllOf, Compare

if TYPE_CHECKING:
    from kinesumer.model.rows import Row, Value
    from kinesumer.ports import Condition, Write, WriteResult
    from kinesumer.simulation.machine import Machine

TOLERANCE = 1e-6
SAFE_LEASE_SHARE = 0.75
"""Share of its lease for which a session may deliver after it sent a heartbeat."""


class SessionLeases:
    """Leases that begin with the first attempt of each answered heartbeat.

    A session's clock is its computer's, true and whatever the client makes of it.
    """

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        """The machine that registered each session."""
        self._until: dict[str, float] = {}
        self._first_sent: dict[str, dict[int, float]] = {}
        """First attempt of each heartbeat without an answer, by session."""
        self._answered: dict[str, int] = {}

    def remaining_seconds(self, session: str) -> float:
        """Return the seconds, by its own clock, that a session may still deliver."""
        machine = self.machines.get(session)
        if machine is None:
            return 0.0
        return self._until[session] - machine.now()

    def sent(self, machine: Machine, write: Write) -> None:
        """Record that a machine sends a write of a member row."""
        session = str(write.set.get("session") or _required_session(write.condition))
        now = machine.now()
        if "session" in write.set:
            self.machines[session] = machine
            # A repeated registration extends nothing: the first attempt counts.
            if session not in self._until:
                self._extend(session, now, write.set["lease_ms"])
        elif write.set.get("dead") is True:
            # A session that declares itself dead has released its shards.
            if self.machines.get(session) is machine:
                self._until[session] = min(self._until[session], now)
        elif "beat" in write.set:
            beat = require_int(write.set["beat"])
            if beat > self._answered.get(session, 0):
                self._first_sent.setdefault(session, {}).setdefault(beat, now)

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        """Extend the lease when a heartbeat's answer reaches its machine."""
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
    """Return an integer attribute. Raises TypeError."""
    if not isinstance(value, int):
        raise TypeError(f"the attribute must be an integer, not {value!r}")
    return value


def plan_id(row: Row) -> tuple[int, int]:
    """Return the plan that a member row carries."""
    return require_int(row.get("leader_epoch", 0)), require_int(
        row.get("plan_version", 0)
    )


def _required_session(condition: Condition) -> str:
    """Return the session that a write's condition names."""
    if isinstance(condition, Compare):
        is_session = condition.attribute == "session" and condition.op == "="
        return str(condition.value) if is_session else ""
    parts = condition.parts if isinstance(condition, AllOf) else ()
    return next(filter(None, map(_required_session, parts)), "")
