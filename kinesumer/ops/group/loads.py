"""Derive the loads of clients and shards from reports, and explain a plan by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from kinesumer.core import lineage, plan
from kinesumer.core.load import KnownLoads, work_of, work_of_report
from kinesumer.core.rebalance import load_reason
from kinesumer.model.reports import Load, LoadReport
from kinesumer.model.rows import LeaderRow, MemberRow
from kinesumer.model.streams import ShardKey
from kinesumer.ops.group.snapshot import Snapshot
from kinesumer.runtime.text import first_three
from kinesumer.wire.reports import read_loads

# A hot shard has at least this much work, relative to the average shard.
HOT_RATIO = 1.5


class FleetLoads:
    """The loads that the live clients of a group report."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._of_members = {
            member.client_id: read_loads(member.load, member.streams)
            for member in snapshot.alive
        }

    @property
    def reports(self) -> list[LoadReport]:
        """The reports of all live clients."""
        return [report for found in self._of_members.values() for report in found]

    @cached_property
    def of_shards(self) -> dict[ShardKey, Load]:
        """The load of each owned shard that a client reports."""
        owned = self._snapshot.held
        starts: dict[str, set[int]] = {}
        for row in owned:
            starts.setdefault(row.key.stream_arn, set()).add(row.first_hash)
        known = KnownLoads()
        known.observe(self.reports, {arn: sorted(keys) for arn, keys in starts.items()})
        places = ((row.key, (row.key.stream_arn, row.first_hash)) for row in owned)
        return {key: known.loads[at] for key, at in places if at in known.loads}

    def of_member(self, member: MemberRow) -> Load | None:
        """Return the load of all shards of a client; None if it reports none."""
        reports = self._of_members[member.client_id]
        return sum_loads(report.load for report in reports)

    @cached_property
    def shares(self) -> dict[str, float]:
        """Each client's work, relative to its share; empty if no work is known.

        Clients that get no shards, or don't report the load of theirs, are left out.
        """
        members = self._snapshot.assignable
        work = {
            m.client_id: sum(map(work_of_report, reports))
            for m in members
            if (reports := self._of_members[m.client_id])
            or not self._snapshot.owned[m.session]
        }
        total = sum(work.values())
        if not total:
            return {}
        weights = {m.client_id: m.weight for m in members if m.client_id in work}
        each = total / sum(weights.values())
        return {name: work[name] / (each * weights[name]) for name in work}

    def share(self, member: MemberRow) -> float | None:
        """Return a client's work relative to its share, rounded; None if unknown."""
        share = self.shares.get(member.client_id)
        return None if share is None else round(share, 2)

    @cached_property
    def hot_shards(self) -> frozenset[ShardKey]:
        """The shards that alone have more work than the share of any client.

        They also have more than HOT_RATIO times the work of the average shard.
        Otherwise all equal shards would be hot if there are more clients than shards.
        """
        work = {key: work_of(load) for key, load in self.of_shards.items()}
        weights = [member.weight for member in self._snapshot.assignable]
        if len(weights) < 2:
            return frozenset()
        total = sum(work.values())
        share = total * max(weights) / sum(weights)
        least = max(share, HOT_RATIO * total / max(1, len(work)))
        return frozenset(key for key, size in work.items() if size > least)


def sum_loads(loads: Iterable[Load]) -> Load | None:
    """Return several loads together; None for no loads."""
    rates = list(zip(*loads, strict=True))
    return Load(*map(sum, rates)) if rates else None


class Rates(msgspec.Struct, frozen=True):
    """A load with three digits, for reports."""

    bytes_per_second: float
    records_per_second: float
    handler_seconds_per_second: float

    @property
    def load(self) -> Load:
        """The load."""
        return Load(*msgspec.structs.astuple(self))

    @property
    def work(self) -> int:
        """The work, as the assignor by load computes it."""
        return work_of(self.load)


def rates(load: Load | None) -> Rates | None:
    """Return a load for a report; None if it is unknown."""
    return None if load is None else Rates(*(float(f"{rate:.3g}") for rate in load))


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
    if leader is None or not leader.assignor or not snapshot.assignable:
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
    awaited = {(row.key.stream_arn, row.first_hash) for row in snapshot.held}
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
    if hot := sorted(key.shard_id for key in loads.hot_shards):
        are, each = ("is", "it") if len(hot) == 1 else ("are", "each")
        yield (
            f"{first_three(hot)} {are} hot: {each} alone has more work than a client's "
            "share, and no plan divides a shard"
        )


def _limits(snapshot: Snapshot) -> Iterator[str]:
    count = sum(len(snapshot.unassignable(arn)) for arn in snapshot.shards)
    if count:
        shards = "1 shard belongs" if count == 1 else f"{count} shards belong"
        yield f"{shards} to no client, because all clients own their max_shards"
