"""Explain why a group's plan is as it is, from its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesumer.core import lineage, plan
from kinesumer.core.load import KnownLoads
from kinesumer.core.load_reason import load_reason
from kinesumer.runtime.text import first_three

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kinesumer.model.rows import LeaderRow, MemberRow
    from kinesumer.ops.group.loads import FleetLoads
    from kinesumer.ops.group.snapshot import Snapshot

BY_COUNT = (
    "the assignor range gives each client successive shards, in proportion to its "
    "weight; loads don't matter"
)


class PlanReport(msgspec.Struct, frozen=True):
    """The assignor and the age of the last plan, and the reasons for it."""

    assignor: str | None  # None if no plan says by which assignor it was made
    age_seconds: float | None
    reasons: list[str]
    waits: bool = False  # whether the plan by load waits until loads are known


def plan_reasons(snapshot: Snapshot, loads: FleetLoads) -> PlanReport:
    """Return why the plan is as it is, by the same rules by which the leader plans."""
    leader = snapshot.leader
    members = plan.live_clients(snapshot.alive)
    if leader is None or not leader.assignor or not plan.assignable(members):
        return PlanReport(None, None, [])
    age = None
    if snapshot.read_at is not None:
        # The clocks of this machine and of the leader may differ a little.
        age = max(0.0, snapshot.read_at - leader.planned_at)
    decision, waits = _decision(snapshot, loads, leader, age)
    reasons = [
        decision,
        *_busiest(loads),
        *(_hot(loads) if leader.assignor == "load" else ()),
        *_limits(snapshot),
    ]
    rounded = None if age is None else round(age, 1)
    return PlanReport(leader.assignor, rounded, reasons, waits)


def _decision(
    snapshot: Snapshot, loads: FleetLoads, leader: LeaderRow, age: float | None
) -> tuple[str, bool]:
    """Return why ranges are as they are, and whether the loads have to be known."""
    if leader.assignor != "load":
        is_range = leader.assignor == "range"
        return BY_COUNT if is_range else f"the assignor is {leader.assignor}", False
    interval_seconds = leader.rebalance_ms / 1000
    if age is not None and age < interval_seconds:
        return (
            f"the last plan is {int(age)} s old: until {interval_seconds:g} s have "
            "passed (rebalance_interval_seconds), the load alone causes no other plan"
        ), False
    members = plan.live_clients(snapshot.alive)
    shards = _planned_shards(snapshot, members)
    known = KnownLoads()
    known.observe(loads.reports, shards)
    # The leader takes the others as average shards when it has waited for a minute.
    awaited = {
        (row.key.stream_arn, row.first_hash)
        for row in snapshot.rows
        if row.owner in snapshot.sessions
    }
    every = {(arn, start) for arn, starts in shards.items() for start in starts}
    unknown = len(awaited & every - known.loads.keys())
    sizes, _ = known.work(shards, 0.0)
    work = plan.Work(sizes, is_known=bool(known.loads) and not unknown)
    reason = load_reason(members, shards, work, unknown or len(every))
    return reason, not work.is_known


def _planned_shards(
    snapshot: Snapshot, members: Sequence[MemberRow]
) -> Mapping[str, list[int]]:
    """Return the starting hash keys of the shards that the leader plans."""
    has_limits = any(member.max_shards is not None for member in members)
    starts_of = (
        lineage.unended_shard_starts if has_limits else lineage.open_shard_starts
    )
    requested = frozenset[str]().union(*(member.streams for member in members))
    return {
        stream.arn: starts_of(snapshot.shards[stream.arn])
        for stream in snapshot.streams
        if stream.baseline and stream.arn in requested
    }


def _busiest(loads: FleetLoads) -> Iterator[str]:
    if loads.shares:
        client_id, share = max(loads.shares.items(), key=lambda item: item[1])
        yield (
            f"{client_id} is the busiest client, with {100 * share:.0f} % of its share "
            "of the work"
        )


def _hot(loads: FleetLoads) -> Iterator[str]:
    hot = sorted(key.shard_id for key in loads.hot_shards)
    if len(hot) == 1:
        yield (
            f"{hot[0]} is hot: it alone has more work than a client's share, and no "
            "plan divides a shard"
        )
    elif hot:
        yield (
            f"{first_three(hot)} are hot: each alone has more work than a client's "
            "share, and no plan divides a shard"
        )


def _limits(snapshot: Snapshot) -> Iterator[str]:
    count = sum(len(snapshot.unassignable(arn)) for arn in snapshot.shards)
    if count:
        shards = "1 shard belongs" if count == 1 else f"{count} shards belong"
        yield f"{shards} to no client, because all clients own their max_shards"
