"""Check the calls of user code: their callbacks, turns and deadly records.

Callbacks enclose the records of each shard, in pairs (I17). Shards that wait get their
turns (L15). A claim names only a record that may have killed two processes (I16).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kinesumer.consuming.owned_shard import OwnedShard
from kinesumer.core.turns import TURN_SECONDS
from kinesumer.handlers.dead_letters.letter import DeadLetter
from kinesumer.model.owned import AssignedShard, RevokeReason
from kinesumer.model.records import Fence, Record, Source
from kinesumer.model.rows import Row, Value
from kinesumer.model.streams import ShardKey
from kinesumer.ports import Write
from kinesumer.runtime.clock import MAX_YIELD_SECONDS
from kinesumer.testing.kinesis.limits import TICK
from kinesumer.testing.simulation.invariants.base import (
    Checker,
    ShardTrace,
    record_position,
    require_int,
    row_position,
)
from kinesumer.testing.simulation.machine import Machine


class RecordKey(NamedTuple):
    """A record's shard, sequence number and sub-sequence number."""

    arn: str
    shard_id: str
    number: str
    part: int | None


def record_key(at: Record | DeadLetter) -> RecordKey:
    """Return the key of a record, or of a dead letter's record."""
    number, part = at.sequence_number, at.sub_sequence_number
    return RecordKey(at.stream_arn, at.shard_id, number, part)


class DeadlyRecords:
    """The records that kill processes, and checks of what the rows say about them."""

    def __init__(self, checker: Checker) -> None:
        self.deaths: Counter[RecordKey] = Counter()  # of each record ever deadly
        # Deaths at each record since the last seek of its shard, which resets them.
        self._since_seek: Counter[RecordKey] = Counter()
        self.most_deaths: int = 0
        self.named: int = 0
        # How many owners died while they tried a record, for whatever reason.
        self._tried: Counter[RecordKey] = Counter()
        self._now: set[RecordKey] = set()
        self._checker = checker

    def add(self, key: RecordKey) -> None:
        """Let a record kill each process that gets it from now on."""
        self._now.add(key)
        self.deaths[key] = 0
        self._checker.note("deadly", key.shard_id, f"{key.number} {key.part}")

    def killed(self, key: RecordKey) -> None:
        """Record that a process died at a record."""
        self.deaths[key] += 1
        self._since_seek[key] += 1
        self.most_deaths = max(self.most_deaths, self._since_seek[key])

    def seeked(self, arn: str, shard_id: str) -> None:
        """Record that an operator has moved a shard's position."""
        for key in self._since_seek:
            if (key.arn, key.shard_id) == (arn, shard_id):
                self._since_seek[key] = 0

    def clear(self) -> None:
        """Let no record kill any more, as after a correction of the user's code."""
        self._now.clear()

    def first_of(self, records: Iterable[Record]) -> RecordKey | None:
        """Return the first of the records that kills, or None."""
        if not self._now:
            return None
        return next((k for k in map(record_key, records) if k in self._now), None)

    def may_be_named(self, key: RecordKey) -> bool:
        """Return whether the record kills, or two owners died while they tried it.

        The group cannot tell the two apart.
        """
        return key in self.deaths or self._tried[key] > 1

    def check_claim(self, trace: ShardTrace, arn: str, write: Write, row: Row) -> None:
        """Check that a claim names only a record that may kill (I16).

        ``row`` is the row before the claim.
        """
        if "suspect" in write.set:
            suspect = _stored_key(arn, trace, write.set["suspect"])
            if _is_tried(trace, suspect, row):
                self._tried[suspect] += 1
        if "poison" not in write.set or row.get("poison") == write.set["poison"]:
            return
        named = _stored_key(arn, trace, write.set["poison"])
        position = row_position(row)
        if position and position >= record_position(named.number, named.part):
            return  # read from a stale row, and void
        self.named += 1
        if not self.may_be_named(named):
            text = f"{trace.shard_id}: record {write.set['poison']} killed no process"
            self._checker.fail("I16", f"{text}, but is named: {row}")


def _stored_key(arn: str, trace: ShardTrace, stored: Value) -> RecordKey:
    number, _, part = str(stored).partition(":")
    return RecordKey(arn, trace.shard_id, number, int(part) if part else None)


def _is_tried(trace: ShardTrace, key: RecordKey, row: Row) -> bool:
    """Return whether a shard's last owner was trying a record when it died.

    ``row`` is the shard's row at that time. Only the row knows of a record that user
    code was about to get.
    """
    ownership = trace.ownerships[require_int(row["epoch"])]
    index = trace.index[key.number, key.part]
    if index < ownership.done_until or index in ownership.done:
        return False
    is_noted = _stored_key(key.arn, trace, row.get("tried", "")) == key
    return is_noted or index + 1 in ownership.cursors.values()


# A release may come early by this share of the time that it waits, since the clocks of
# machines differ and drift.
EARLY_SHARE = 0.2


@dataclass
class Assignment:
    """A shard between the start of ``on_assigned`` and the end of ``on_revoked``."""

    fence: Fence
    # True after ``on_assigned`` returned and before ``on_revoked`` is called.
    is_assigned: bool = False
    # When the client began to give the shard up, by its own clock.
    given_up_at: float | None = None


class Calls:
    """The calls of all clients. Nothing is checked if clients have no callbacks."""

    def __init__(self, checker: Checker) -> None:
        self.is_active = False
        self.wait_seconds: float = 0.0
        self.counts: Counter[str] = Counter()  # of revocations, by their reasons
        self._checker = checker
        self._known: dict[tuple[Machine, ShardKey], Assignment] = {}
        # The number of calls of user code that have records, by client and shard.
        self._busy: Counter[tuple[Machine, ShardKey]] = Counter()
        # When the last call of each client began or ended, by the client's clock.
        self._changed_at: dict[Machine, float] = {}

    # --- callbacks ---

    def assigning(self, machine: Machine, shard: AssignedShard) -> None:
        """Check a call of ``on_assigned``."""
        before = self._known.get((machine, shard.key))
        if before is not None:
            text = f"epoch {before.fence.epoch} is not revoked"
            self._fail(machine, shard.fence, f"is assigned, but {text}")
        self._known[machine, shard.key] = Assignment(shard.fence)

    def assigned(self, machine: Machine, shard: AssignedShard) -> None:
        """Record that ``on_assigned`` returned."""
        self._known[machine, shard.key].is_assigned = True

    def given_up(self, machine: Machine, fence: Fence) -> None:
        """Record that a client begins to give up a shard."""
        known = self._known.get((machine, fence.shard))
        if known is not None and known.given_up_at is None:
            known.given_up_at = machine.now()

    def revoking(
        self, machine: Machine, shard: AssignedShard, reason: RevokeReason
    ) -> None:
        """Check a call of ``on_revoked``."""
        self.counts[reason] += 1
        known = self._known.get((machine, shard.key))
        if known is None or known.fence.epoch != shard.fence.epoch:
            self._fail(machine, shard.fence, "is revoked, but was not assigned")
        elif not known.is_assigned:
            self._fail(machine, shard.fence, "is revoked twice, or too early")
        else:
            known.is_assigned = False
        if self._busy[machine, shard.key]:
            self._fail(machine, shard.fence, "is revoked while user code has records")

    def over(self, machine: Machine, shard: AssignedShard) -> None:
        """Record that ``on_revoked`` is over, or that ``on_assigned`` failed."""
        self._known.pop((machine, shard.key), None)

    # --- records and writes ---

    def delivered(self, machine: Machine, record: Record) -> None:
        """Check a record that is delivered to user code."""
        known = self._known.get((machine, record.fence.shard))
        if known is None or known.fence.epoch != record.fence.epoch:
            self._fail(machine, record.fence, "delivers, but is not assigned")
        elif not known.is_assigned:
            self._fail(machine, record.fence, "delivers before or after its calls")

    def busy(self, machine: Machine, fence: Fence, change: int) -> None:
        """Record that a call of user code begins (1) or ends (-1)."""
        self._busy[machine, fence.shard] += change
        self._changed_at[machine] = machine.now()

    def quiet_seconds(self, machine: Machine) -> float:
        """Return how long no call of user code has begun or ended."""
        return machine.now() - self._changed_at.get(machine, 0.0)

    def is_busy(self, machine: Machine, fence: Fence) -> bool:
        """Return whether a call of user code has records of a shard."""
        return self._busy[machine, fence.shard] > 0

    def releases(self, machine: Machine, shard: ShardKey, epoch: int) -> None:
        """Check a write that releases or ends a shard."""
        known = self._known.get((machine, shard))
        if known is None or known.fence.epoch != epoch:
            return
        since = known.given_up_at
        least = (1 - EARLY_SHARE) * self.wait_seconds
        if since is None or machine.now() - since < least:
            self._fail(machine, known.fence, "is released before its call is over")

    def stopped(self, machine: Machine) -> None:
        """Check that a client that has ended has revoked all shards."""
        for (owner, _), known in self._known.items():
            if owner is machine:
                self._fail(machine, known.fence, "is not revoked at the end")

    def _fail(self, machine: Machine, fence: Fence, text: str) -> None:
        name = f"{machine.name}: {fence.shard_id} epoch {fence.epoch}"
        self._checker.fail("I17", f"{name} {text}")


# A client pauses for less than this between two turns. If it pauses for longer, it
# waits for its lease, and handlers notice at different times that it is valid again.
MOST_PAUSE_SECONDS = MAX_YIELD_SECONDS + TURN_SECONDS


class Turns:
    """Checks each client's turns, from its first record on.

    A shard waits if user code has some, but not all, of its records still to get, and
    none at present. While it waits, each other shard gets records for one turn at most.
    """

    def __init__(self, checker: Checker, calls: Calls) -> None:
        self.most_seconds = TURN_SECONDS
        self._checker, self._calls = checker, calls
        self._clients: dict[Machine, _Client] = {}

    def begin(
        self, machine: Machine, owned_shards: Callable[[], Iterable[OwnedShard]]
    ) -> None:
        """Forget a client's former turns, since it begins to consume."""
        self._clients[machine] = _Client(owned_shards)

    def delivered(self, machine: Machine, record: Record) -> None:
        """Check a record that user code gets."""
        client, source, now = self._clients.get(machine), record.source, machine.now()
        if client is None or source is None:
            return
        if self._calls.quiet_seconds(machine) > MOST_PAUSE_SECONDS:
            client.since.clear()
        waiting = [
            each
            for each in client.waiting(now)
            if not (each is source or self._calls.is_busy(machine, each.fence))
        ]
        for other in client.since.keys() - waiting:
            del client.since[other]
        for other in waiting:
            began = client.since.setdefault(other, {}).setdefault(source, now)
            if now - began > self.most_seconds + TICK:
                self._fail(machine, source, other, now - began)
        client.received[source] += 1

    def tried(self, machine: Machine, record: Record) -> None:
        """Record that user code tries a record, perhaps again."""
        if machine in self._clients:
            self._clients[machine].failing.pop(record_key(record), None)

    def failed(self, machine: Machine, record: Record) -> None:
        """Record that user code failed, so that the record waits for another try.

        The records behind it wait, too: all of its shard, or all of its keys.
        """
        if machine in self._clients and record.source is not None:
            self._clients[machine].failing[record_key(record)] = record.source

    def _fail(
        self, machine: Machine, source: Source, other: Source, seconds: float
    ) -> None:
        one, waiting = (f"{it.shard_id} of {it.stream}" for it in (source, other))
        text = f"{one} gets records for {seconds:.3f} s while {waiting} waits"
        self._checker.fail("L15", f"{machine.name}: {text}")


class _Client:
    def __init__(self, owned_shards: Callable[[], Iterable[OwnedShard]]) -> None:
        self._owned_shards = owned_shards
        self.received: Counter[Source] = Counter()
        # The shards of the records that user code failed to handle.
        self.failing: dict[RecordKey, Source] = {}
        # For each shard that waits, when each other shard had its first record since.
        self.since: dict[Source, dict[Source, float]] = {}

    def waiting(self, now: float) -> list[Source]:
        """Return the shards that have records which user code hasn't got.

        Leave out those that wait for something else than their turn. In a KCL fleet, a
        single shard may wait for its lease.
        """
        failing = {*self.failing.values()}
        return [
            owned.source
            for owned in self._owned_shards()
            if not (owned.revoked or owned.row.deaths.counted)
            and owned.lease.permits(now)
            and owned.queued_records > self.received[owned.source]
            and owned.source not in failing
        ]
