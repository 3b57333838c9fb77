"""The callbacks of simulated clients, which may be slow, hang or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.consuming.assignment_callbacks import AssignmentCallbacks, ShardCalls

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kinesumer.consuming.owned_shard import OwnedShard
    from kinesumer.model.owned import AssignedShard, RevokeReason
    from kinesumer.testing.simulation.invariants.calls import Calls
    from kinesumer.testing.simulation.machine import Machine
    from kinesumer.testing.simulation.user_code import FaultyUserCode


class SimulatedCallbacks(AssignmentCallbacks):
    """Callbacks that report to the checker.

    ``on_revoking`` is called first in each call of ``on_revoked``.
    """

    machine: Machine
    checker: Calls

    def __init__(
        self,
        machine: Machine,
        checker: Calls,
        user_code: FaultyUserCode,
        on_revoking: Callable[[AssignedShard], None],
    ) -> None:
        super().__init__(self._assigned, self._revoked, in_threads=False)
        self.machine, self.checker = machine, checker
        self._user_code, self._on_revoking = user_code, on_revoking

    def begin(self, owned: OwnedShard) -> ShardCalls:
        """Return the calls for a shard that was claimed."""
        calls = _ReportedCalls(self, owned, self._last.get(owned.key))
        self._last[owned.key] = calls
        return calls

    async def _assigned(self, shard: AssignedShard) -> None:
        self.checker.assigning(self.machine, shard)
        try:
            await self._user_code.assigned(shard)
        except BaseException:
            self.checker.over(self.machine, shard)
            raise
        self.checker.assigned(self.machine, shard)

    async def _revoked(self, shard: AssignedShard, reason: RevokeReason) -> None:
        self.checker.revoking(self.machine, shard, reason)
        try:
            self._on_revoking(shard)
            await self._user_code.revoked(shard, reason)
        finally:
            self.checker.over(self.machine, shard)


class _ReportedCalls(ShardCalls):
    """Reports when a client begins to give its shard up."""

    def revoke(self, reason: RevokeReason) -> asyncio.Task[bool]:
        """Begin to call ``on_revoked``."""
        callbacks = self._callbacks
        assert isinstance(callbacks, SimulatedCallbacks)
        callbacks.checker.given_up(callbacks.machine, self.owned.source.fence)
        return super().revoke(reason)
