"""Check the leases of a KCL fleet whose workers are clients and KCL workers.

What the KCL's protocol allows is allowed, and no more. A worker may take a lease that
was not renewed for the failover time, or steal one from a worker that has more. The
former owner learns that later: until then, both may deliver. A client may do so for
three quarters of the failover time after the last write to its lease.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any

from kinesumer.config import Config
from kinesumer.model.rows import Row
from kinesumer.ports import Write, WriteResult
from kinesumer.testing.kinesis.limits import TICK
from kinesumer.testing.simulation.invariants.base import (
    SAFE_LEASE_SHARE,
    Ownership,
    ShardTrace,
    require_int,
    required_values,
    row_position,
)
from kinesumer.testing.simulation.invariants.checker import InvariantChecker
from kinesumer.testing.simulation.machine import Machine

FAILOVER_SECONDS = Config().kcl_failover_seconds
# The failover time by the clock of the fastest machine.
LEAST_FAILOVER_SECONDS = FAILOVER_SECONDS / 1.05 - TICK
# How old the view may be by which a worker decides to steal.
VIEW_SECONDS = 20.0
# The sub-sequence number of a position after a whole record.
ALL_PARTS = 2**31 - 1
# These attributes may change without a new counter.
TOLD = {"startingHashKey", "endingHashKey", "childShardIds"}
# Begins the owner of a lease whose worker is no client, or was one before.
KCL = "kcl:"


class LeaseChecker(InvariantChecker):
    """Checks the predicates of a KCL fleet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._checks["lease"] = self._lease_write
        # The ARN and the shard of each lease, by the lease's key.
        self.lease_places: dict[str, tuple[str, str]] = {}
        self._leases: dict[str, Row] = {}
        # When the counter of each lease last changed.
        self._written_at: dict[str, float] = {}
        # When each write was last sent, by the lease's key and the new counter.
        self._sent_at: dict[tuple[Machine, str, int], float] = {}
        # Until when each ownership may deliver, by the clock of its machine.
        self._until: dict[tuple[ShardTrace, int], float] = {}
        # How many leases each worker had, from time to time: of open shards, and all.
        # Nobody's are those of the worker "".
        self._loads: deque[tuple[float, tuple[Counter[str], Counter[str]]]] = deque()

    def lease_trace(self, key: str) -> ShardTrace:
        """Return the history of a lease's shard."""
        return self.shards[self.lease_places[key]]

    # --- what KCL workers do ---

    def begins(self, key: str) -> None:
        """Check that a KCL worker may begin with a shard (I8)."""
        self._check_parents(self.lease_places[key][0], self.lease_trace(key))

    def processed(self, key: str, record: tuple[str, int | None]) -> None:
        """Record that a KCL worker has processed a record."""
        trace = self.lease_trace(key)
        index = trace.index[record]
        self.delivered_count += 1
        self.redelivered += trace.delivered[index]
        trace.delivered[index] = 1
        trace.mark(index, trace.seeked_epoch)

    # --- what clients send and learn ---

    def sent(self, machine: Machine, write: Write) -> None:
        """Check a write that a machine sends."""
        super().sent(machine, write)
        if write.key.pk == "lease" and "leaseCounter" in write.set:
            key, counter = write.key.sk, require_int(write.set["leaseCounter"])
            self._sent_at[machine, key, counter] = machine.now()
            if "leaseOwner" in write.remove:
                self._check_release_of(key, machine, write)

    def answered(self, machine: Machine, write: Write, written: WriteResult) -> None:
        """Record that the answer to a write has reached the machine."""
        super().answered(machine, write, written)
        row = written.row
        if write.key.pk != "lease" or not written.applied or row is None:
            return
        key, epoch = write.key.sk, require_int(row.get("kinesumer_epoch", 0))
        ownership = self.lease_trace(key).ownerships.get(epoch)
        if ownership is not None and ownership.machine is machine and _is_held(row):
            sent = machine, key, require_int(row["leaseCounter"])
            until = self._sent_at.pop(sent) + SAFE_LEASE_SHARE * FAILOVER_SECONDS
            self._until[self.lease_trace(key), epoch] = until

    def _check_release_of(self, key: str, machine: Machine, write: Write) -> None:
        """Check that the release of a lease stores all its progress (I10)."""
        trace, lease = self.lease_trace(key), self._leases.get(key, {})
        ownership = trace.ownerships.get(require_int(lease.get("kinesumer_epoch", 0)))
        if ownership is None or ownership.machine is not machine or ownership.released:
            return
        # The table refuses an attempt with an earlier counter.
        counter = dict(required_values(write.condition)).get("leaseCounter")
        if not _is_held(lease) or counter != lease["leaseCounter"]:
            return
        ownership.released = True
        after = self._row_of(trace, {**lease, **write.set})
        first, done = trace.first_of(after), ownership.done_until
        if first < done:
            text = f"releases {trace.shard_id} at record {first}, but {done} are done"
            self.fail("I10", f"{machine.name} {text}")

    def _check_permit(
        self, machine: Machine, trace: ShardTrace, ownership: Ownership
    ) -> None:
        """Check that a client's session and lease permit a delivery (I3)."""
        left = self._until.get((trace, ownership.epoch), 0.0) - machine.now()
        left = min(left, self.leases.remaining_seconds(ownership.session))
        if left < -TICK:
            text = f"{machine.name} delivers {trace.shard_id} epoch {ownership.epoch}"
            self.fail("I3", f"{text} {-left:.3f} s after its last moment")

    # --- what is written to leases ---

    def _lease_write(self, write: Write, before: Row | None, after: Row | None) -> None:
        key = write.key.sk
        trace = self.lease_trace(key)
        old = trace.row
        if after is None:
            trace.row, trace.pruned = None, True
            self._check_deletion(key, trace, old)
        elif before is None or old is None:
            trace.row = self._row_of(trace, after)
            self._check_creation(key, trace, trace.row)
        else:
            trace.row = self._row_of(trace, after)
            if self._check_counter(trace, before, after):
                self._check_progress(trace, old, trace.row)
                self._check_owners(write, trace, old, trace.row)
        if after is None or (before or {}).get("leaseCounter") != after["leaseCounter"]:
            self._written_at[key] = self.loop.real
        self._leases.pop(key, None)
        if after is not None:
            self._leases[key] = after
        self._note_ready()

    def _row_of(self, trace: ShardTrace, lease: Row) -> Row:
        """Return a lease as the row of a shard, whose owner is a session or a name."""
        row: Row = {"pk": "lease##", "sk": trace.shard_id, "start": "TRIM_HORIZON"}
        row["epoch"] = lease.get("kinesumer_epoch", 0)
        row["ended"], row["ready"] = lease["checkpoint"] == "SHARD_END", False
        if worker := lease.get("leaseOwner"):
            session = lease.get("kinesumer_owner") if _is_held(lease) else None
            row |= {"owner": session or f"{KCL}{worker}", "owner_id": worker}
        number = str(lease["checkpoint"])
        sub = require_int(lease["checkpointSubSequenceNumber"])
        if row["ended"] and trace.log:
            number, sub = trace.log[-1][1], ALL_PARTS
        if number.isdigit():
            row["sequence_number"] = number
            # The last part stands for the whole record: for a record that is no
            # aggregate, the KCL stores part 0.
            if (number, sub + 1) in trace.index:
                row["sub_sequence_number"] = sub
        return row

    def _check_deletion(self, key: str, trace: ShardTrace, old: Row | None) -> None:
        """Check that only leases of finished shards are deleted (I1)."""
        if old is None or not old["ended"]:
            self.fail("I1", f"the lease of {trace.shard_id} is deleted before its end")
        for child in self._children(key, trace):
            begun = child.pruned or row_position(child.row) is not None
            if not begun and not (child.row and child.row["ended"]):
                text = f"is deleted before {child.shard_id} has begun"
                self.fail("I1", f"the lease of {trace.shard_id} {text}")

    def _check_creation(self, key: str, trace: ShardTrace, row: Row) -> None:
        """Check that a lease is new, and has no parent without a lease (I1, I8).

        A KCL worker begins with a shard whose parents have no leases.
        """
        if trace.pruned:
            self.fail("I1", f"the lease of {trace.shard_id} is created again")
        if "owner" in row or row["ended"] or "sequence_number" in row:
            self.fail("I1", f"the lease of {trace.shard_id} is created as {row}")
        for name in trace.parents:
            parent = self.shards.get((self.lease_places[key][0], name))
            if parent and parent.row is None and not parent.pruned:
                text = f"is created before that of its parent {name}"
                self.fail("I8", f"the lease of {trace.shard_id} {text}")

    def _check_counter(self, trace: ShardTrace, before: Row, after: Row) -> bool:
        """Check that each write has the next counter (I4).

        Return False if the write only tells about the shard, which anybody may do.
        """
        names = before.keys() | after.keys()
        changed = {name for name in names if before.get(name) != after.get(name)}
        grown = require_int(after["leaseCounter"]) - require_int(before["leaseCounter"])
        if grown == 0 and changed <= TOLD:
            return False
        if grown != 1:
            text = f"the counter of {trace.shard_id} grows by {grown}: {changed}"
            self.fail("I4", text)
        return self.loop.halted is None

    def _check_progress(self, trace: ShardTrace, old: Row, new: Row) -> None:
        """Check that only owners store progress, and none goes back (I1, I2, I5)."""
        places = [(row["ended"], row_position(row)) for row in (old, new)]
        if places[0] == places[1]:
            return
        self._check_forward(trace, old, new)
        writer = self.writer.name if self.writer else "an unknown machine"
        if writer != old.get("owner_id"):
            text = f"{writer} stores a checkpoint of {trace.shard_id}"
            self.fail("I5", f"{text}, which {old.get('owner_id')} has")
        if new["ended"] and not old["ended"]:
            trace.ended_at = self.loop.real

    def _check_owners(
        self, write: Write, trace: ShardTrace, old: Row, new: Row
    ) -> None:
        """Check the new owner of a lease, and the former one (I4, I5, I6, I10)."""
        writer = self.writer.name if self.writer else "an unknown machine"
        owner, previous = new.get("owner"), old.get("owner")
        if owner == previous and new["epoch"] == old["epoch"]:
            if owner is not None and writer != new["owner_id"]:
                text = f"{writer} writes to the lease of {trace.shard_id}"
                self.fail("I5", f"{text}, which {new['owner_id']} has")
            return
        if new["epoch"] != old["epoch"]:  # a client claims
            if str(previous or "").startswith(KCL) and writer != old["owner_id"]:
                self._check_taken(write.key.sk, trace, old)
            arn = self.lease_places[write.key.sk][0]
            place = write.key._replace(pk=f"lease##{arn}", sk=f"/{trace.shard_id}")
            self._claimed(trace, write._replace(key=place), old, new)
        elif owner is None:
            if writer != old.get("owner_id"):
                text = f"{writer} releases the lease of {trace.shard_id}"
                self.fail("I5", f"{text}, which {old.get('owner_id')} has")
            for ownership in trace.ownerships.values():
                ownership.ended_at = ownership.ended_at or self.loop.real
        elif writer != new["owner_id"]:
            self.fail("I4", f"{writer} gives {trace.shard_id} to {new['owner_id']}")
        elif writer != old.get("owner_id"):  # a KCL worker takes
            if previous:
                self.takeovers += 1
                self._check_taken(write.key.sk, trace, old)
            self._check_repeats(trace)

    def _check_repeats(self, trace: ShardTrace) -> None:
        first = trace.first_of(trace.row or {})
        repeats = sum(trace.delivered[max(first, trace.expired) :])
        if repeats > self.max_uncommitted_records:
            self.fail("I10", f"{trace.shard_id}: {repeats} records are delivered again")

    def _check_death(self, shard_id: str, session: str) -> None:
        """Check that the session of a client whose lease another takes is dead (I6)."""
        if not session.startswith(KCL):
            super()._check_death(shard_id, session)

    def _check_taken(self, key: str, trace: ShardTrace, old: Row) -> None:
        """Check that a lease was not renewed for long, or may be stolen (I6)."""
        silent = self.loop.real - self._written_at[key]
        if silent >= LEAST_FAILOVER_SECONDS:
            return
        thief, victim = self.writer.name if self.writer else "", str(old["owner_id"])
        since = self.loop.real - VIEW_SECONDS
        # KCL workers also count the leases of finished shards.
        of = str((trace.row or {}).get("owner")).startswith(KCL)
        loads = [each[of] for at, each in self._loads if at >= since]
        if not any(_may_steal(load, thief, victim) for load in loads):
            text = f"{thief} takes {trace.shard_id} from {victim}, which has renewed it"
            self.fail("I6", f"{text} {silent:.1f} s ago and has only its share")

    def _children(self, key: str, trace: ShardTrace) -> list[ShardTrace]:
        return [
            other
            for (arn, _), other in self.shards.items()
            if arn == self.lease_places[key][0] and trace.shard_id in other.parents
        ]

    def _note_ready(self) -> None:
        """Record which shards may be read, and how many leases each worker has."""
        opened, every = Counter[str](), Counter[str]()
        for (arn, _), trace in self.shards.items():
            if (row := trace.row) is None:
                continue
            parents = [self.shards.get((arn, name)) for name in trace.parents]
            rows = [parent.row for parent in parents if parent is not None]
            row["ready"] = all(other is None or other["ended"] for other in rows)
            worker = str(row.get("owner_id", ""))
            every[worker] += 1
            opened[worker] += bool(row["ready"] and not row["ended"])
        self._loads.append((self.loop.real, (opened, every)))
        while self._loads[0][0] < self.loop.real - 2 * VIEW_SECONDS:
            self._loads.popleft()


def _may_steal(loads: Counter[str], thief: str, victim: str) -> bool:
    """Return whether a worker may steal a lease of another, by the KCL's rule."""
    workers = {name for name, load in loads.items() if load and name} | {thief}
    share = max(1, math.ceil(loads.total() / len(workers)))
    needed, over = share - loads[thief], loads[victim] - share
    return needed > 0 and (over > 0 or (over == 0 and needed > 1))


def _is_held(lease: Row) -> bool:
    """Return whether a client wrote last to a lease that it has."""
    return (
        lease.get("leaseOwner") is not None
        and lease.get("kinesumer_owner_id") == lease["leaseOwner"]
        and lease.get("kinesumer_counter") == lease["leaseCounter"]
    )
