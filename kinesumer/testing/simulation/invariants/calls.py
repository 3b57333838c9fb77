"""Check that callbacks enclose the records of each shard, in pairs (I17)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kinesumer.model.owned import AssignedShard, RevokeReason
    from kinesumer.model.records import Fence, Record
    from kinesumer.model.streams import ShardKey
    from kinesumer.testing.simulation.invariants.base import Checker
    from kinesumer.testing.simulation.machine import Machine

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
        self.counts: dict[str, int] = {}
        self._checker = checker
        self._known: dict[tuple[Machine, ShardKey], Assignment] = {}
        # The number of calls of user code that have records, by client and shard.
        self._busy: dict[tuple[Machine, ShardKey], int] = {}
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
        self.counts[reason] = self.counts.get(reason, 0) + 1
        known = self._known.get((machine, shard.key))
        if known is None or known.fence.epoch != shard.fence.epoch:
            self._fail(machine, shard.fence, "is revoked, but was not assigned")
        elif not known.is_assigned:
            self._fail(machine, shard.fence, "is revoked twice, or too early")
        else:
            known.is_assigned = False
        if self._busy.get((machine, shard.key)):
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
        key = machine, fence.shard
        self._busy[key] = self._busy.get(key, 0) + change
        self._changed_at[machine] = machine.now()

    def quiet_seconds(self, machine: Machine) -> float:
        """Return how long no call of user code has begun or ended."""
        return machine.now() - self._changed_at.get(machine, 0.0)

    def is_busy(self, machine: Machine, fence: Fence) -> bool:
        """Return whether a call of user code has records of a shard."""
        return self._busy.get((machine, fence.shard), 0) > 0

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
