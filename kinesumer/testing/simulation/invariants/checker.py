"""The protocol's safety predicates, checked at every write and every delivery.

The checker doesn't see the decisions of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from kinesumer.model.records import Record
from kinesumer.model.rows import Row
from kinesumer.model.streams import ShardKey
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.kinesis.limits import TICK
from kinesumer.testing.simulation.event_loop import VirtualLoop
from kinesumer.testing.simulation.invariants.base import (
    Checker,
    Ownership,
    ShardTrace,
    require_int,
    required_values,
    row_position,
)
from kinesumer.testing.simulation.invariants.calls import (
    Calls,
    DeadlyRecords,
    RecordKey,
    Turns,
)
from kinesumer.testing.simulation.invariants.writes import Membership, Pauses, Seeks
from kinesumer.testing.simulation.machine import Machine

_NO_ROW: Row = {}


class InvariantChecker(Checker):
    """Checks the predicates I1 to I12, and I14 to I17."""

    def __init__(
        self,
        loop: VirtualLoop,
        max_uncommitted_records: int = 1 << 60,
        max_shards: int | None = None,
    ) -> None:
        super().__init__(loop)
        self.max_shards = max_shards
        self.max_uncommitted_records = max_uncommitted_records
        self.shards: dict[tuple[str, str], ShardTrace] = {}
        self.takeovers = self.handovers = self.redelivered = self.delivered_count = 0
        # True if order matters only between records with the same partition key. A
        # record without a key has no order.
        self.is_by_key = False
        # Seconds from each record's arrival to its delivery, or None if not measured.
        self.delays: list[float] | None = None
        self.deadly: DeadlyRecords = DeadlyRecords(self)
        self.seeks: Seeks = Seeks(self)
        self.pauses: Pauses = Pauses(self)
        self.calls: Calls = Calls(self)
        self.turns: Turns = Turns(self, self.calls)
        membership = Membership(self, self.pauses)
        self._checks: dict[str, Callable[[Write, Row | None, Row | None], None]] = {
            "shard": self._shard_write,
            "member": membership.member_write,
            "leader": membership.leader_write,
            "group": self.pauses.group_write,
        }

    # --- what is produced and expires ---

    def opened(self, arn: str, shard_id: str, parents: tuple[str, ...]) -> None:
        """Add a new shard of a stream."""
        self.shards[arn, shard_id] = ShardTrace(shard_id, parents)

    def produced(
        self,
        arn: str,
        shard_id: str,
        positions: Iterable[tuple[str, int | None]],
        arrived: float,
    ) -> None:
        """Add records that were put into a shard."""
        trace = self.shards[arn, shard_id]
        for sequence_number, sub in positions:
            trace.append(sequence_number, sub, arrived)

    def expired(self, arn: str, before: float, is_runnable: Container[str]) -> None:
        """Record the expiry of a stream's old records and of unlisted shards."""
        for (stream, shard_id), trace in self.shards.items():
            if stream == arn:
                trace.expire(before)
                trace.forgotten = shard_id not in is_runnable

    # --- what members do ---

    def sent(self, machine: Machine, write: Write) -> None:
        """Check a write that a machine sends."""
        kind = write.key.pk.partition("#")[0]
        if kind == "member" and not write.delete:
            self.leases.sent(machine, write)
        elif kind == "shard" and "owner" in write.remove:
            self._check_release(machine, write)

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        """Record that the answer to a write has reached the machine."""
        if self.loop.halted is None:
            self.leases.answered(machine, write, written)

    def delivered(self, machine: Machine, record: Record) -> None:
        """Check a record that is delivered to user code."""
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
        if self.calls.is_active:
            self.calls.delivered(machine, record)
        self.turns.delivered(machine, record)
        index = trace.index[record.sequence_number, record.sub_sequence_number]
        key = (record.partition_key or index) if self.is_by_key else None
        due = ownership.cursors.get(key, ownership.first)
        if index < due or (not self.is_by_key and index > max(due, trace.expired)):
            text = f"but {due} is next (expired: {trace.expired})"
            self.fail("I9", f"{machine.name} delivers {name} record {index}, {text}")
        ownership.cursors[key] = index + 1
        if epoch < trace.seeked_epoch:
            return  # the client hadn't noticed the seek yet
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

    def set_aside(self, key: RecordKey) -> None:
        """Record that a record that kills processes became a dead letter (I16)."""
        trace = self.shards[key.arn, key.shard_id]
        if not self.deadly.may_be_named(key):
            self.fail("I16", f"{key} became a dead letter, but killed no process")
            return
        index, ownership = trace.index[key.number, key.part], max(trace.ownerships)
        trace.mark(index, ownership)
        trace.ownerships[ownership].mark(index)
        trace.ownerships[ownership].cursors[None] = index + 1

    def _check_permit(
        self, machine: Machine, trace: ShardTrace, ownership: Ownership
    ) -> None:
        session, row = ownership.session, trace.row or _NO_ROW
        left = self.leases.remaining_seconds(session)
        text = f"{machine.name} delivers {trace.shard_id} in"
        if left < -TICK:
            late = f"{-left:.3f} s after its last moment"
            self.fail("I3", f"{text} session {session} {late}")
        # After a seek, which raises the row's epoch, its owner may deliver until the
        # next claim.
        if row.get("owner") != session or max(trace.ownerships) != ownership.epoch:
            other = f"but it belongs to {row.get('owner')} {row.get('epoch')}"
            self.fail("I3", f"{text} epoch {ownership.epoch} of {session}, {other}")

    def _check_parents(self, arn: str, trace: ShardTrace) -> None:
        for parent_id in trace.parents:
            parent = self.shards.get((arn, parent_id))
            if parent is None or parent.pruned or parent.has_expired:
                continue
            if trace.may_precede(parent):
                continue
            if parent.row is not None and not parent.row["ended"]:
                self.fail("I8", f"{trace.shard_id} delivers before {parent_id} ended")
            if parent.row is None and parent.log:
                self.fail("I8", f"{trace.shard_id} delivers, {parent_id} has no row")

    def _check_release(self, machine: Machine, write: Write) -> None:
        """Check that the release of a shard stores all its progress (I10)."""
        trace = self._trace(write)
        if trace is None or trace.row is None:
            return
        owner, epoch = trace.row.get("owner"), trace.row.get("epoch")
        ownership = trace.ownerships.get(require_int(epoch))
        if ownership is None or ownership.machine is not machine:
            return
        # The store rejects a late attempt for an earlier epoch. When an attempt is
        # repeated, more records may be done.
        required = required_values(write.condition)
        is_late = {n for name, n in required if name == "epoch"} - {ownership.epoch}
        if ownership.session != owner or is_late or ownership.released:
            return
        ownership.released = True
        if owner not in self.dead:  # else the shard is lost, and waits for no call
            key = ShardKey(_arn_of(write), trace.shard_id)
            self.calls.releases(machine, key, ownership.epoch)
        after = {**trace.row, **write.set}
        for name in write.remove:
            after.pop(name, None)
        first, done = trace.first_of(after), ownership.done_until
        if first < done:
            text = f"releases {trace.shard_id} at record {first}, but {done} are done"
            self.fail("I10", f"{machine.name} {text}")

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
        return self.shards.get((_arn_of(write), write.key.sk.partition("/")[2]))

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
        elif before is None:
            if trace.pruned and not trace.forgotten:
                self.fail("I1", f"{trace.shard_id} is created again after its end")
            self.seeks.created(trace, after)
        elif self.seeks.is_seek(write):
            self.seeks.seeked(trace, before, after)
            self.deadly.seeked(_arn_of(write), trace.shard_id)
        else:
            self._check_forward(trace, before, after)
            if self.loop.halted is not None:
                return  # report only the first violation
            if after["epoch"] != before["epoch"]:
                self._claimed(trace, write, before, after)
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
            text = f"checkpoint passes record {undone}, which user code hasn't done"
            self.fail("I2", f"{trace.shard_id}: {text}")

    def _check_owner(self, trace: ShardTrace, before: Row, after: Row) -> None:
        names = ("owner", "sequence_number", "sub_sequence_number", "ended")
        if all(before.get(name) == after.get(name) for name in names):
            return
        owner = str(before.get("owner", ""))
        if not self.is_written_by(owner):
            writer = self.writer.name if self.writer else "an unknown machine"
            text = f"{writer} changes {trace.shard_id} of {owner or 'no owner'}"
            self.fail("I5", text)
        if after.get("owner", owner) != owner:
            self.fail("I5", f"{trace.shard_id}: another owner in the same epoch")
        ownership = trace.ownerships.get(require_int(before["epoch"]))
        if ownership is not None and "owner" not in after:
            ownership.ended_at = self.loop.real
        if after["ended"] and not before["ended"]:
            undone = trace.first_undone(trace.first_due(before), len(trace.log))
            if undone is not None:
                text = f"{trace.shard_id} ends, but record {undone} isn't done"
                self.fail("I2", text)
            trace.ended_at = self.loop.real

    def _claimed(
        self, trace: ShardTrace, write: Write, before: Row, after: Row
    ) -> None:
        epoch, session = require_int(after["epoch"]), str(after.get("owner", ""))
        arn, name = _arn_of(write), trace.shard_id
        if before["ended"]:
            self.fail("I1", f"{name} is claimed after its end")
        self.pauses.check_claim(before, session)
        if epoch != require_int(before["epoch"]) + 1 or epoch in trace.ownerships:
            self.fail("I4", f"{name}: epoch {epoch} is claimed out of turn")
        if self.writer is None or not self.is_written_by(session):
            self.fail("I4", f"{name}: claimed for {session} by another")
            return
        previous = str(before.get("owner", ""))
        if taken := bool(previous) and previous != session:
            self._check_death(name, previous)
        self._check_limit(session)
        first, now = trace.first_of(before), self.loop.real
        if previous and trace.ownerships:
            trace.ownerships[max(trace.ownerships)].ended_at = now
        trace.ownerships[epoch] = Ownership(
            epoch, session, self.writer, first, now, done_until=first
        )
        # Don't count expired records, which can't be delivered again.
        repeats = sum(trace.delivered[max(first, trace.expired) :])
        self.deadly.check_claim(trace, arn, write, before)
        self.takeovers += taken
        self.handovers += not previous and epoch > 1
        if repeats > self.max_uncommitted_records:
            text = f"max_uncommitted_records is {self.max_uncommitted_records}"
            self.fail("I10", f"{name}: {repeats} records are delivered again, {text}")

    def _check_limit(self, session: str) -> None:
        """Check that a session owns no more than ``max_shards`` shards (I15)."""
        if self.max_shards is None:
            return
        rows = [trace.row for trace in self.shards.values() if trace.row is not None]
        owned = sum(row.get("owner") == session for row in rows)
        if owned > self.max_shards:
            self.fail("I15", f"{session} owns {owned} shards, not {self.max_shards}")

    def _check_death(self, shard_id: str, session: str) -> None:
        left = self.leases.remaining_seconds(session)
        if session not in self.dead:
            self.fail("I6", f"{shard_id} is taken from {session}, not dead")
        if left > TICK:
            late = f"{left:.3f} s before its last moment"
            self.fail("I6", f"{shard_id} is taken from {session} {late}")


def _arn_of(write: Write) -> str:
    """Return the ARN of the stream whose shard row a write changes."""
    return write.key.pk.split("#", 2)[2]
