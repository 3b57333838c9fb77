"""Parts of all checks: the violation, events, leases, and the truth about each shard.

The truth is recorded without any code of the library.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kinesumer.model.rows import Row, Value
from kinesumer.ports import Compare, Condition, Write, WriteResult
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.machine import Machine

Event = tuple[float, str, object, object]
# A record's position in its shard, in a form that can be sorted: the length of the
# sequence number, the sequence number, and the sub-sequence number.
RecordPosition = tuple[int, str, int]
# A sub-sequence number that stands for the whole Kinesis record.
WHOLE = 1 << 53

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
        self.writer: Machine | None = None  # the machine whose write is being applied
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        # True during a fatal fault, such as the loss of the table: nothing is checked.
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
        required = dict(required_values(write.condition))
        session = str(write.set.get("session") or required.get("session", ""))
        now = machine.now()
        if "session" in write.set:
            self.machines[session] = machine
            # The lease begins with the first attempt to register.
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


def required_values(condition: Condition) -> Iterator[tuple[str, Value]]:
    """Yield each attribute that a condition compares for equality, with the value."""
    if not isinstance(condition, Compare):
        for part in condition.parts:
            yield from required_values(part)
    elif condition.op == "=":
        yield condition.attribute, condition.value


def require_int(value: Value | None) -> int:
    """Return an attribute's value. Raises TypeError if it isn't an integer."""
    if not isinstance(value, int):
        raise TypeError(f"the attribute must be an integer, not {value!r}")
    return value


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


# --- the history of a shard -----------------------------------------------------------


def record_position(sequence_number: str, sub: int | None) -> RecordPosition:
    """Return a sortable position. Without ``sub``, it is after the whole record."""
    return len(sequence_number), sequence_number, WHOLE if sub is None else sub


def row_position(row: Row | None) -> RecordPosition | None:
    """Return the checkpoint that a shard row holds."""
    if row is None or "sequence_number" not in row:
        return None
    sub = row.get("sub_sequence_number")
    assert sub is None or isinstance(sub, int)
    return record_position(str(row["sequence_number"]), sub)


@dataclass
class Ownership:
    """One epoch of a shard, with its owner, first record, and progress."""

    epoch: int
    session: str
    machine: Machine
    first: int  # index of the record that must be delivered first
    claimed_at: float = 0.0
    started_at: float | None = None  # the time of the first record's delivery
    # When the owner released the shard, or another session took it.
    ended_at: float | None = None
    released: bool = False  # True if the owner has tried to release or end the shard
    # The index after the last delivered record: of each partition key if order matters
    # only within a key, and else a single one with the key None.
    cursors: dict[str | int | None, int] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    done_until: int = 0  # every index from ``first`` to this one (exclusive) is done

    def mark(self, index: int) -> None:
        """Note that user code has done a record in this epoch."""
        self.done.add(index)
        while self.done_until in self.done:
            self.done.remove(self.done_until)
            self.done_until += 1


class ShardTrace:
    """The true history of one shard."""

    def __init__(self, shard_id: str, parents: tuple[str, ...]) -> None:
        self.shard_id = shard_id
        self.parents = parents
        self.log: list[RecordPosition] = []
        self.arrivals: list[float] = []
        self.index: dict[tuple[str, int | None], int] = {}
        self.done: bytearray = bytearray()
        self.delivered: bytearray = bytearray()
        # All records before this index are done, expired, or before the start.
        self.done_until: int = 0
        self.expired: int = 0
        self.ownerships: dict[int, Ownership] = {}
        self.row: Row | None = None
        self.forgotten = False  # True if Kinesis no longer lists the shard
        self.pruned = False
        # The time at which the shard's end was stored.
        self.ended_at: float | None = None
        # The target index of the last seek, if there was a seek.
        self.seek_index: int | None = None
        # The epoch that the last seek began. What happens in earlier epochs is void.
        self.seeked_epoch: int = 0
        # For each operator, the number of its last seek of this shard, among all seeks.
        self.seeked: dict[str, int] = {}
        # The operator and number of the last seek that undid the shard's end.
        self.reopened: tuple[str, int] = ("", 0)

    @property
    def has_expired(self) -> bool:
        """True if all records of the shard have expired."""
        return self.expired == len(self.log)

    def seek(self, first: int, epoch: int, operator: str, number: int) -> None:
        """Record a seek to an index. The seek begins an epoch that has no owner."""
        self.seek_index, self.seeked_epoch = first, epoch
        self.seeked[operator] = number
        self.done_until = first
        self.done[:first] = b"\1" * first
        for marks in (self.done, self.delivered):
            marks[first:] = bytes(len(marks) - first)

    def append(self, sequence_number: str, sub: int | None, arrived: float) -> None:
        """Add a record that was produced."""
        self.index[sequence_number, sub] = len(self.log)
        self.log.append(record_position(sequence_number, sub))
        self.arrivals.append(arrived)
        self.done.append(0)
        self.delivered.append(0)

    def expire(self, before: float) -> None:
        """Note that the records older than ``before`` have expired."""
        self.expired = max(self.expired, bisect_left(self.arrivals, before))

    def through(self, position: RecordPosition) -> int:
        """Return the number of records that are at or before a position."""
        return bisect_right(self.log, position)

    def since(self, start: str) -> int:
        """Return the index of the first record at or after a stored start."""
        kind, _, timestamp = start.partition(" ")
        if kind == "AT_TIMESTAMP":
            return bisect_left(self.arrivals, float(timestamp))
        return 0

    def first_of(self, row: Row) -> int:
        """Return the index of the first record that an owner with this row reads."""
        position = row_position(row)
        if position is not None:
            return self.through(position)
        return self.since(str(row["start"]))

    def first_due(self, row: Row) -> int:
        """Return the index of the first record after both the checkpoint and the start.

        The checkpoint is before the start if the owner has only read older records.
        """
        return max(self.first_of(row), self.since(str(row["start"])))

    def first_undone(self, first: int, stop: int) -> int | None:
        """Return the first index before ``stop`` that is neither done nor expired."""
        index = max(first, self.expired, min(self.done_until, stop))
        undone = self.done.find(0, index, stop) if index < stop else -1
        return None if undone < 0 else undone

    def may_precede(self, parent: ShardTrace) -> bool:
        """Return True if the shard may be read although its parent was reopened.

        That is so until the operator that reopened the parent has seeked this shard.
        """
        operator, number = parent.reopened
        return self.seeked.get(operator, 0) < number

    def mark(self, index: int, epoch: int) -> None:
        """Record that user code has done a record."""
        if epoch < self.seeked_epoch:
            return
        self.done[index] = 1
        while self.done_until < len(self.done) and self.done[self.done_until]:
            self.done_until += 1
