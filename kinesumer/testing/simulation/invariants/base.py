"""Violations, events, leases of sessions, and the state that all checks share."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kinesumer.model.rows import Value
from kinesumer.ports import AllOf, Compare, Condition, Write, WriteResult
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.machine import Machine

Event = tuple[float, str, object, object]

MAX_EVENTS = 400  # of which the last ones are shown
SHOWN_EVENTS = 60
# After a heartbeat, a session may deliver for this share of its lease.
SAFE_LEASE_SHARE = 0.75


class ViolationError(AssertionError):
    """An invariant of the protocol doesn't hold."""

    def __init__(self, predicate: str, message: str, at: float) -> None:
        self.predicate = predicate
        super().__init__(f"{predicate} at {at:.3f} s: {message}")


class Checker:
    """The state that all checks share. The first violation stops the run."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.leases: SessionLeases = SessionLeases()
        # For each session that is marked dead, the time of the mark.
        self.dead: dict[str, float] = {}
        # The machine whose write is being applied.
        self.writer: Machine | None = None
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        # True during a fatal fault, such as the loss of the table. Nothing is checked
        # then.
        self.is_disabled = False

    def fail(self, predicate: str, message: str) -> None:
        """Report a violation. It ends the run."""
        if self.loop.halted is None and not self.is_disabled:
            self.loop.halted = ViolationError(predicate, message, self.loop.real)

    def note(self, kind: str, who: object, what: object = "") -> None:
        """Record an event, to be shown with a violation."""
        self.events.append((self.loop.real, kind, who, what))

    def is_written_by(self, session: str) -> bool:
        """Return True if this session sent the write that is being applied."""
        machine = self.leases.machines.get(session)
        return machine is not None and machine is self.writer


class SessionLeases:
    """The leases of sessions, as the checker knows them.

    An answered heartbeat extends the lease from the time of the heartbeat's first
    attempt. Times are those of the clock of the session's computer.
    """

    def __init__(self) -> None:
        # The machine that registered each session.
        self.machines: dict[str, Machine] = {}
        self._until: dict[str, float] = {}
        # For each session, its unanswered heartbeats and the times of their first
        # attempts.
        self._first_sent: dict[str, dict[int, float]] = {}
        self._answered: dict[str, int] = {}

    def remaining_seconds(self, session: str) -> float:
        """Return how many seconds, on its own clock, a session may still deliver."""
        machine = self.machines.get(session)
        return 0.0 if machine is None else self._until[session] - machine.now()

    def sent(self, machine: Machine, write: Write) -> None:
        """Record that a machine sends a write of a member row."""
        session = str(write.set.get("session") or _required_session(write.condition))
        now = machine.now()
        if "session" in write.set:
            self.machines[session] = machine
            # The lease begins with the first attempt to register, so ignore later
            # attempts.
            if session not in self._until:
                self._extend(session, now, write.set["lease_ms"])
        elif write.set.get("dead") is True:
            # A session that declares itself dead may not deliver any more.
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
    """Return an attribute's value. Raises TypeError if it isn't an integer."""
    if not isinstance(value, int):
        raise TypeError(f"the attribute must be an integer, not {value!r}")
    return value


def _required_session(condition: Condition) -> str:
    """Return the session that a write's condition names."""
    if isinstance(condition, Compare):
        is_session = condition.attribute == "session" and condition.op == "="
        return str(condition.value) if is_session else ""
    parts = condition.parts if isinstance(condition, AllOf) else ()
    return next(filter(None, map(_required_session, parts)), "")


# --- events ---------------------------------------------------------------------------


def format_events(events: Iterable[Event]) -> list[str]:
    """Return the last events as lines, with only the last heartbeat of each client."""
    lines: list[str] = []
    beating: set[object] = set()
    for at, kind, who, what in reversed([*events]):
        if isinstance(what, Write):
            if "beat" in what.set and "session" not in what.set:
                if what.key in beating:
                    continue
                beating.add(what.key)
            lines.append(f"{at:10.3f}  {who} {_describe(what)}")
        else:
            lines.append(f"{at:10.3f}  {kind}: {who} {what}".rstrip(" :"))
        if len(lines) == SHOWN_EVENTS:
            break
    return lines[::-1]


def _describe(write: Write) -> str:
    kind, key = write.key.pk.partition("#")[0], write.key.sk.rpartition("/")[2]
    stream = write.key.pk.rpartition("/")[2] if kind == "shard" else ""
    if write.delete:
        return f"deletes {kind} {stream} {key}"
    changes = [f"{name} {_short(value)}" for name, value in write.set.items()]
    changes += [f"no {name}" for name in write.remove]
    return f"writes {kind} {stream} {key}: {', '.join(changes)}".replace("  ", " ")


def _short(value: Value) -> str:
    """Return a value. Of a long number, return only the last digits."""
    number, colon, part = str(value).partition(":")
    return f"…{number[-6:]}{colon}{part}" if len(number) > 50 else str(value)
