"""Derive the load of clients and shards from what the clients report."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from kinesumer.core import plan
from kinesumer.core.load import KnownLoads, work_of, work_of_report
from kinesumer.model.loads import Load
from kinesumer.wire.loads import read_loads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.loads import LoadReport
    from kinesumer.model.rows import MemberRow
    from kinesumer.model.streams import ShardKey
    from kinesumer.ops.group.snapshot import Snapshot


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
        owned = [
            row for row in self._snapshot.rows if row.owner in self._snapshot.sessions
        ]
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

        Clients that own shards but report no load, or that get no shards, are left out.
        """
        members = plan.assignable(plan.live_clients(self._snapshot.alive))
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

        They also have at least half as much again as the average shard. Otherwise all
        equal shards would be hot if there are more clients than shards.
        """
        members = plan.assignable(plan.live_clients(self._snapshot.alive))
        work = {key: work_of(load) for key, load in self.of_shards.items()}
        weights = [member.weight for member in members]
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
