"""When the leader makes a plan: at once, after gathering joins, or after the last one.

A plan may come while shards of the plan before still move. It could then give a
released shard to a client that doesn't know that yet, and the shard would wait.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.core import plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesumer.model.rows import MemberRow

MOVING_BEATS = 2.5
"""Heartbeats that a plan's moves take: one until all clients know the plan, 1.1 until
shards are released, and a margin."""


class RebalanceSchedule:
    """Decides when a new plan is due."""

    def __init__(self, rebalance_delay_seconds: float) -> None:
        self._rebalance_delay_seconds = rebalance_delay_seconds
        self._planned: Sequence[MemberRow] | None = None
        self._joined_at: float | None = None
        self._requested = True
        self._moving_until = -math.inf

    def reset(self, moving_until: float) -> None:
        """Plan at once after an election. An earlier plan moves shards until then."""
        self._planned, self._requested = None, True
        self._moving_until = moving_until

    def request(self) -> None:
        """Request a plan although the members are unchanged."""
        self._requested = True

    def is_due(
        self, members: Sequence[MemberRow], streams: Iterable[str], now: float
    ) -> bool:
        """Return whether to plan now for these live members.

        If some shards have no reader, plan at once. Otherwise members go on reading
        their shards, and joins are gathered first.
        """
        changed = plan.change(self._planned, members)
        if not changed.joined:
            self._joined_at = None
        elif self._joined_at is None:
            self._joined_at = now
        if not (changed.joined or changed.other or self._requested):
            return False
        if not plan.is_fully_consumed(members, streams):
            return True
        if now < self._moving_until:
            return False
        gathered = (
            self._joined_at is not None
            and now - self._joined_at >= self._rebalance_delay_seconds
        )
        return changed.other or self._requested or gathered

    def record_plan(self, members: Sequence[MemberRow], moving_until: float) -> None:
        """Note the plan for these members, and until when its shards move."""
        self._planned, self._joined_at, self._requested = members, None, False
        self._moving_until = max(self._moving_until, moving_until)
