"""Decide when to make a plan, and say why a plan by load keeps or changes ranges.

A plan is made at once, after further joins, or after earlier moves. It waits until the
moves of the last plan are done. Otherwise it could give a shard that was just released
to a client that doesn't know the new plan yet, and no client would read the shard until
then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from kinesumer.core import plan
from kinesumer.core.load import COUNTS_SECONDS
from kinesumer.core.load_assignor import (
    LABELS_SLACK,
    MEMBERS_SLACK,
    Verdict,
    assign_load,
)
from kinesumer.core.plan import Work, previous_ranges, receivers_of
from kinesumer.model.rows import MemberRow

# The duration of a plan's moves, in heartbeat intervals. After one interval all clients
# know the plan, and after 1.1 more intervals they have released their shards. The rest
# is a margin.
MOVING_BEATS = 2.5
# Another plan must be better at each look for this long. So noise moves less, and when
# loads change, the plan is made from the new averages.
LASTING_SECONDS = 10.0


class RebalanceSchedule:
    """Decides when a new plan is due."""

    def __init__(self, rebalance_delay_seconds: float) -> None:
        self._rebalance_delay_seconds = rebalance_delay_seconds
        self._planned: Sequence[MemberRow] | None = None
        self._joined_at: float | None = None
        self._requested = True
        self._moving_until = -math.inf

    def reset(self, moving_until: float) -> None:
        """Request a plan after an election. Earlier moves end at ``moving_until``."""
        self._planned, self._requested = None, True
        self._moving_until = moving_until

    def request(self) -> None:
        """Request a plan although the members are unchanged."""
        self._requested = True

    def is_due(
        self, members: Sequence[MemberRow], streams: Iterable[str], now: float
    ) -> bool:
        """Return whether to plan now for these live members.

        If some shards have no reader, plan at once. Otherwise wait for further joins,
        while members continue to read their shards.
        """
        changed = plan.change(self._planned, members)
        if not changed.joined:
            self._joined_at = None
        elif self._joined_at is None:
            self._joined_at = now
        if not (changed.joined or changed.other or self._requested):
            return False
        # Don't wait if a shard has no reader: the plan can only help this shard.
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
        """Note the plan for these members, and the time at which its moves end."""
        self._planned, self._joined_at, self._requested = members, None, False
        self._moving_until = max(self._moving_until, moving_until)


class LoadSchedule:
    """Decides when the load alone causes another plan."""

    def __init__(self, rebalance_interval_seconds: float) -> None:
        self._rebalance_interval_seconds = rebalance_interval_seconds
        self._next_look = 0.0
        self._next_plan = 0.0
        self._better_since: float | None = None

    def looks(self, now: float) -> bool:
        """Return whether to look at the loads now."""
        if now < self._next_look:
            return False
        self._next_look = now + COUNTS_SECONDS
        return True

    def is_due(self, now: float, *, is_better: bool) -> bool:
        """Return whether to plan. ``is_better`` tells whether this look's plan is."""
        if not is_better:
            self._better_since = None
            return False
        if self._better_since is None:
            self._better_since = now
        has_lasted = now - self._better_since >= LASTING_SECONDS
        return has_lasted and now >= self._next_plan

    def record_plan(self, now: float) -> None:
        """Note that a plan was made, for whatever reason."""
        self._better_since = None
        self._next_plan = now + self._rebalance_interval_seconds


def load_reason(
    members: Sequence[MemberRow],
    shards: Mapping[str, Sequence[int]],
    work: Work,
    unknown_shards: int,
) -> str:
    """Return why a plan by load keeps or changes the present ranges of the members.

    The first three arguments are those of ``plan.make_plan``. The load of
    ``unknown_shards`` isn't known.
    """
    previous = previous_ranges(members)
    receivers = receivers_of(members)
    ranges, verdicts = assign_load(
        receivers, shards, work.of_shards, previous, is_known=work.is_known
    )
    if any(m.range != ranges.get(m.client_id, ()) for m in members):
        return _changed_text([verdict for verdict in verdicts if not verdict.is_kept])
    if not work.is_known:
        count = "1 shard" if unknown_shards == 1 else f"{unknown_shards} shards"
        return (
            f"ranges are kept: the load of {count} isn't known yet, and for up to a "
            "minute only shards without a client move"
        )
    return _kept_text(verdicts)


def _gain(verdict: Verdict) -> int:
    return verdict.top_percent - verdict.other_percent


def _taker(verdict: Verdict) -> str:
    is_label = verdict.slack == LABELS_SLACK
    return "label" if is_label else "client with several shards"


def _changed_text(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return (
            "clients have joined, left or changed: only their shards and those that "
            "they take over move"
        )
    verdict = max(verdicts, key=_gain)
    if verdict.slack is None or _gain(verdict) <= 0:
        return "shards move so that no client has more than its max_shards"
    return (
        f"shards move to lower the most work of a {_taker(verdict)} from "
        f"{verdict.top_percent} % to {verdict.other_percent} % of its share: "
        f"{verdict.moved_percent} % of the shards"
    )


def _kept_text(verdicts: Sequence[Verdict]) -> str:
    uneven = [verdict for verdict in verdicts if not verdict.is_even]
    if not uneven:
        return (
            "ranges are kept: no client with several shards has more than "
            f"{MEMBERS_SLACK.keep} % above its share of the work"
        )
    worst = max(uneven, key=lambda verdict: verdict.top_percent)
    top, other = worst.top_percent, worst.other_percent
    if _gain(worst) <= 0:
        return (
            f"ranges are kept: the busiest {_taker(worst)} has {top} % of its share of "
            "the work, and no other successive shards would lower that"
        )
    text = (
        f"ranges are kept: other ranges would lower the most work of a {_taker(worst)} "
        f"only from {top} % to {other} % of its share"
    )
    if worst.moved_percent:
        text += f", and move {worst.moved_percent} % of the shards"
    return text
