"""The protocol's safety predicates, checked at every write and every delivery.

The checker sees what the store applied, what was delivered and done, and the one true
time. It knows nothing of how clients decide.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kinesumer.ports import AllOf, Compare
from kinesumer.simulation.invariants.base import ViolationError
from kinesumer.simulation.invariants.leases import TOLERANCE, SessionLeases, require_int
from kinesumer.simulation.invariants.membership import Membership
from kinesumer.simulation.invariants.operations import Pauses, Seeks
from kinesumer.simulation.trace import Ownership, ShardTrace, row_position

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from kinesumer.model.records import Record
    from kinesumer.model.rows import Row, Value
    from kinesumer.ports import Write, WriteResult
    from kinesumer.simulation.event_loop import VirtualLoop
    from kinesumer.simulation.machine import Machine

EVENTS = 400
_NO_ROW: Row = {}


class InvariantChecker:
    """Checks I1 to I12, and I14; the first violation stops the run."""

    def __init__(
        self,
        loop: VirtualLoop,
        max_uncommitted_records: int = 1 << 60,
        assignor: str = "range",
    ) -> None:
        self.loop = loop
        self.max_uncommitted_records = max_uncommitted_records
        self.shards: dict[tuple[str, str], ShardTrace] = {}
        self.leases = SessionLeases()
        self.dead: dict[str, float] = {}
        """Sessions marked dead, and since when."""
        self.events: deque[tuple[float, str, object, object]] = deque(maxlen=EVENTS)
        self.takeovers = 0
        self.handovers = 0
        self.redelivered = 0
        self.delivered_count = 0
        self.is_disabled = False
        """Set while a fatal fault changes the table: nothing is checked then."""
        self.writer: Machine | None = None
        """The machine whose write is being applied."""
        self.is_by_key = False
        """Whether only records of one partition key have an order."""
        self.delays: list[float] | None = None
        """Seconds from arrival to delivery of each record, if they are measured."""
        self.seeks = Seeks(self)
        self.pauses = Pauses(self)
        membership = Membership(self, assignor, self.pauses)
        self._checks: dict[str, Callable[[Write, Row | None, Row | None], None]] = {
            "shard": self._shard_write,
            "member": membership.member_write,
            "leader": membership.leader_write,
            "group": self.pauses.group_write,
        }

    @property
    def now(self) -> float:
        """The seconds since the simulation began."""
        return self.loop.real

    def fail(self, predicate: str, message: str) -> None:
        """Report a violation. It ends the run."""
        if self.loop.halted is None and not self.is_disabled:
            self.loop.halted = ViolationError(predicate, message, self.loop.real)

    def note(self, kind: str, who: object, what: object = "") -> None:
        """Record an event, to be shown with a violation."""
        self.events.append((self.loop.real, kind, who, what))

    # --- what is produced and expires ---

    def opened(self, arn: str, shard_id: str, parents: tuple[str, ...]) -> None:
        """Add a shard that was opened."""
        self.shards[arn, shard_id] = ShardTrace(shard_id, parents)

    def produced(
        self,
        arn: str,
        shard_id: str,
        places: Iterable[tuple[str, int | None]],
        arrived: float,
    ) -> None:
        """Add records that were put into a shard."""
        trace = self.shards[arn, shard_id]
        for sequence_number, sub in places:
            trace.append(sequence_number, sub, arrived)

    def expired(self, arn: str, before: float, is_runnable: Container[str]) -> None:
        """Expire records before a time, and shards that are no longer listed."""
        for (stream, shard_id), trace in self.shards.items():
            if stream == arn:
                trace.expire(before)
                trace.forgotten = shard_id not in is_runnable

    # --- what members do (faults.WriteObserver) ---

    def writes(self, machine: Machine) -> None:
        """Attribute the next write that the store applies to this machine."""
        self.writer = machine

    def sent(self, machine: Machine, write: Write) -> None:
        """Check a write that a machine sends."""
        kind = write.key.pk.partition("#")[0]
        if kind == "member" and not write.delete:
            self.leases.sent(machine, write)
        elif kind == "shard" and "owner" in write.remove:
            self._check_release(machine, write)

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        """Record an answer that reached its machine."""
        if self.loop.halted is None:
            self.leases.answered(machine, write, written)

    def delivered(self, machine: Machine, record: Record) -> None:
        """Check a record that user code is given."""
        if self.is_disabled:
            return
        self.delivered_count += 1
        if self.delays is not None and record.approximate_arrival_timestamp:
            arrived = record.approximate_arrival_timestamp
            self.delays.append(self.loop.services.wall() - arrived)
        shard, epoch = record.fence[:2]
        trace = self.shards[shard]
        ownership = trace.ownerships.get(epoch)
        name = f"{shard.shard_id} epoch {epoch}"
        if ownership is None or ownership.machine is not machine:
            self.fail("I4", f"{machine.name} delivers {name}, which it never claimed")
            return
        if ownership.started_at is None:
            if epoch >= trace.seeked_epoch:
                self._check_parents(shard.stream_arn, trace)
            ownership.started_at = self.loop.real
            self.note("first delivery", machine.name, name)
        self._check_permit(machine, trace, ownership)
        index = trace.index[record.sequence_number, record.sub_sequence_number]
        key = record.partition_key if self.is_by_key else None
        due = ownership.cursors.get(key, ownership.first)
        if index < due or (not self.is_by_key and index > max(due, trace.expired)):
            self.fail(
                "I9",
                f"{machine.name} delivers {name} record {index}, "
                f"but {due} is next (expired: {trace.expired})",
            )
        ownership.cursors[key] = index + 1
        if epoch < trace.seeked_epoch:
            return  # it was delivered before the client noticed the seek
        if trace.delivered[index]:
            self.redelivered += 1
        trace.delivered[index] = 1

    def done(self, record: Record) -> None:
        """Record that user code has done a record."""
        if self.is_disabled:
            return
        trace = self.shards[record.fence.shard]
        index = trace.index[record.sequence_number, record.sub_sequence_number]
        trace.mark(index, record.fence.epoch)
        trace.ownerships[record.fence.epoch].mark(index)

    def _check_permit(
        self, machine: Machine, trace: ShardTrace, ownership: Ownership
    ) -> None:
        session = ownership.session
        left = self.leases.remaining_seconds(session)
        if left < -TOLERANCE:
            self.fail(
                "I3",
                f"{machine.name} delivers {trace.shard_id} in session {session} "
                f"{-left:.3f} s after its last moment",
            )
        row = trace.row or _NO_ROW
        # A seek raises the epoch. The owner may deliver until that epoch is claimed.
        if row.get("owner") != session or max(trace.ownerships) != ownership.epoch:
            self.fail(
                "I3",
                f"{machine.name} delivers {trace.shard_id} in epoch {ownership.epoch} "
                f"of {session}, but it belongs to {row.get('owner')} "
                f"{row.get('epoch')}",
            )

    def _check_parents(self, arn: str, trace: ShardTrace) -> None:
        for parent_id in trace.parents:
            parent = self.shards.get((arn, parent_id))
            if parent is None or parent.pruned or self._has_expired(parent):
                continue
            if trace.may_precede(parent):
                continue
            if parent.row is not None and not parent.row["ended"]:
                self.fail("I8", f"{trace.shard_id} delivers before {parent_id} ended")
            if parent.row is None and parent.log:
                self.fail("I8", f"{trace.shard_id} delivers, {parent_id} has no row")

    def _has_expired(self, trace: ShardTrace) -> bool:
        return trace.expired == len(trace.log)

    def _check_release(self, machine: Machine, write: Write) -> None:
        """Check that a session releases a shard with all its progress (I10)."""
        trace = self._trace(write)
        if trace is None or trace.row is None:
            return
        owner, epoch = trace.row.get("owner"), trace.row.get("epoch")
        ownership = trace.ownerships.get(int(epoch)) if isinstance(epoch, int) else None
        if (
            ownership is None
            or ownership.session != owner
            or ownership.machine is not machine
        ):
            return
        if _required_epochs(write) - {ownership.epoch}:
            return  # a late attempt for an earlier epoch, which the store rejects
        if ownership.released:
            return  # a repeated attempt: more records may be done by now
        ownership.released = True
        after = {**trace.row, **write.set}
        for name in write.remove:
            after.pop(name, None)
        if trace.first_of(after) < ownership.done_until:
            self.fail(
                "I10",
                f"{machine.name} releases {trace.shard_id} at record "
                f"{trace.first_of(after)}, but {ownership.done_until} are done",
            )

    # --- what the store applies ---

    def applied(self, write: Write, before: Row | None, after: Row | None) -> None:
        """Check a write that the store applied (a hook for MemoryStore.on_write)."""
        if self.is_disabled:
            return
        self.note("write", self.writer and self.writer.name, write)
        check = self._checks.get(write.key.pk.partition("#")[0])
        if check is not None:
            check(write, before, after)
        self.writer = None

    def _trace(self, write: Write) -> ShardTrace | None:
        arn = write.key.pk.split("#", 2)[2]
        return self.shards.get((arn, write.key.sk.partition("/")[2]))

    def _shard_write(self, write: Write, before: Row | None, after: Row | None) -> None:
        trace = self._trace(write)
        if trace is None:
            self.fail("I8", f"a row for an unknown shard: {write.key}")
            return
        trace.row = after
        if after is None:
            trace.pruned = True
            if before is None or not before["ended"]:
                self.fail("I1", f"{trace.shard_id} is pruned without having ended")
            elif not trace.forgotten:
                self.fail("I1", f"{trace.shard_id} is pruned, but Kinesis has it")
            return
        if before is None:
            if trace.pruned and not trace.forgotten:
                self.fail("I1", f"{trace.shard_id} is created again after its end")
            self.seeks.created(trace, after)
            return
        if self.seeks.is_seek(write):
            self.seeks.seeked(trace, before, after)
            return
        self._check_forward(trace, before, after)
        if self.loop.halted is not None:
            return  # later violations would hide the first one
        if after["epoch"] != before["epoch"]:
            self._claimed(trace, before, after)
        else:
            self._check_owner(trace, before, after)

    def _check_forward(self, trace: ShardTrace, before: Row, after: Row) -> None:
        old, new = row_position(before), row_position(after)
        if require_int(after["epoch"]) < require_int(before["epoch"]):
            self.fail("I1", f"{trace.shard_id}: epoch goes back")
        if before["ended"] and not after["ended"]:
            self.fail("I1", f"{trace.shard_id}: its end is undone")
        if old == new:
            return
        if old is not None and (new is None or new < old):
            self.fail("I1", f"{trace.shard_id}: position goes back from {old} to {new}")
            return
        assert new is not None
        undone = trace.first_undone(trace.first_due(before), trace.through(new))
        if undone is not None:
            self.fail(
                "I2",
                f"{trace.shard_id}: checkpoint passes record {undone}, "
                "which user code hasn't done",
            )

    def _check_owner(self, trace: ShardTrace, before: Row, after: Row) -> None:
        names = ("owner", "sequence_number", "sub_sequence_number", "ended")
        if all(before.get(name) == after.get(name) for name in names):
            return
        owner = str(before.get("owner", ""))
        if not owner or self.leases.machines.get(owner) is not self.writer:
            writer = self.writer.name if self.writer else "an unknown machine"
            self.fail(
                "I5", f"{writer} changes {trace.shard_id} of {owner or 'no owner'}"
            )
        if after.get("owner", owner) != owner:
            self.fail("I5", f"{trace.shard_id}: another owner in the same epoch")
        ownership = trace.ownerships.get(require_int(before["epoch"]))
        if ownership is not None and "owner" not in after:
            ownership.ended_at = self.loop.real
        if after["ended"] and not before["ended"]:
            self._check_end(trace, before)
            trace.ended_at = self.loop.real

    def _check_end(self, trace: ShardTrace, before: Row) -> None:
        undone = trace.first_undone(trace.first_due(before), len(trace.log))
        if undone is not None:
            self.fail("I2", f"{trace.shard_id} ends, but record {undone} isn't done")

    def _claimed(self, trace: ShardTrace, before: Row, after: Row) -> None:
        epoch, session = require_int(after["epoch"]), str(after.get("owner", ""))
        if before["ended"]:
            self.fail("I1", f"{trace.shard_id} is claimed after its end")
        self.pauses.check_claim(before, session)
        if epoch != require_int(before["epoch"]) + 1 or epoch in trace.ownerships:
            self.fail("I4", f"{trace.shard_id}: epoch {epoch} is claimed out of turn")
        if self.leases.machines.get(session) is not self.writer or self.writer is None:
            self.fail("I4", f"{trace.shard_id}: claimed for {session} by another")
            return
        previous = str(before.get("owner", ""))
        taken = bool(previous) and previous != session
        if taken:
            self._check_death(trace, previous)
        first = trace.first_of(before)
        now = self.loop.real
        if previous and trace.ownerships:
            trace.ownerships[max(trace.ownerships)].ended_at = now
        trace.ownerships[epoch] = Ownership(
            epoch, session, self.writer, first, now, done_until=first
        )
        # Records that expired after their delivery aren't delivered again.
        repeats = sum(trace.delivered[max(first, trace.expired) :])
        self.takeovers += taken
        self.handovers += not previous and epoch > 1
        if repeats > self.max_uncommitted_records:
            self.fail(
                "I10",
                f"{trace.shard_id}: {repeats} records are delivered again, "
                f"max_uncommitted_records is {self.max_uncommitted_records}",
            )

    def _check_death(self, trace: ShardTrace, session: str) -> None:
        left = self.leases.remaining_seconds(session)
        if session not in self.dead:
            self.fail("I6", f"{trace.shard_id} is taken from {session}, not dead")
        if left > TOLERANCE:
            self.fail(
                "I6",
                f"{trace.shard_id} is taken from {session} "
                f"{left:.3f} s before its last moment",
            )


def _required_epochs(write: Write) -> set[Value]:
    """Return the epoch that a write's condition asks for, if it does."""
    parts = write.condition.parts if isinstance(write.condition, AllOf) else ()
    tests = [part for part in parts if isinstance(part, Compare)]
    return {test.value for test in tests if test.attribute == "epoch"}
