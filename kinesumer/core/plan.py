"""The leader's plan: which members get which ranges, and which rows must change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from kinesumer.core.assignment import Member, assign_range, assign_sticky
from kinesumer.model.rows import CLIENT
from kinesumer.model.streams import HASH_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kinesumer.model.rows import MemberRow
    from kinesumer.model.streams import Interval, Range

STANDBYS = 3
"""Number of clients, by lowest id, of which one leads and the others watch it."""


class Assignment(NamedTuple):
    """What a plan assigns to one member."""

    index: int  # type: ignore[assignment] # hides tuple.index()
    range: Range
    syncs: frozenset[str]


Plan = dict[str, Assignment]
"""By client id."""


def live_clients(members: Iterable[MemberRow]) -> list[MemberRow]:
    """Return the clients that aren't marked dead, in order of index.

    Spark queries get no shards, but are fenced like clients.
    """
    clients = (m for m in members if not m.dead and m.kind == CLIENT)
    return sorted(clients, key=lambda m: m.client_id)


def is_departing(member: MemberRow) -> bool:
    """Return whether a member is leaving or drained.

    It goes on reading until other members have its shards.
    """
    return member.drained or member.state == "leaving"


def assignable(members: Sequence[MemberRow]) -> list[MemberRow]:
    """Return the live members that get shards.

    Departing members get none. Degraded and silent members get none either, as long as
    at least half of the others are healthy. Otherwise the fault isn't theirs.
    """
    staying = [m for m in members if not is_departing(m)]
    well = [m for m in staying if m.state not in ("degraded", "silent")]
    return well if 2 * len(well) >= len(staying) else staying


def make_plan(
    members: Sequence[MemberRow],
    shards: Mapping[str, Sequence[int]],
    assignor: Literal["range", "sticky"],
    synced_by_leader: frozenset[str],
) -> Plan:
    """Assign the shards (starting hash keys by stream) to the live members."""
    receivers = [
        Member(m.client_id, m.weight, m.streams, m.label) for m in assignable(members)
    ]
    if assignor == "sticky":
        previous = {m.client_id: m.range or () for m in members}
        ranges = assign_sticky(receivers, shards, previous)
    else:
        ranges = assign_range(receivers, shards)
    syncs = _assign_syncs(members, synced_by_leader)
    return {
        member.client_id: Assignment(
            index,
            ranges.get(member.client_id, ()),
            frozenset(syncs.get(member.client_id, ())),
        )
        for index, member in enumerate(members)
    }


def _assign_syncs(
    members: Sequence[MemberRow], synced_by_leader: frozenset[str]
) -> dict[str, list[str]]:
    """Let the first member that requests a stream sync it, if the leader can't."""
    syncs: dict[str, list[str]] = {}
    assigned = set(synced_by_leader)
    for member in members:
        for arn in sorted(member.streams - assigned):
            syncs.setdefault(member.client_id, []).append(arn)
            assigned.add(arn)
    return syncs


def to_assign(plan: Plan, members: Sequence[MemberRow]) -> list[MemberRow]:
    """Return the members whose rows differ from the plan.

    An index beyond the standbys has no effect, so it alone causes no write. A member
    that no longer requests a stream of its assignment waits for the next plan.
    """
    return [
        member
        for member in members
        if (part := plan.get(member.client_id)) is not None
        and all(interval.stream_arn in member.streams for interval in part.range)
        and (
            member.range != part.range
            or member.syncs != part.syncs
            or member.index is None
            or min(member.index, STANDBYS) != min(part.index, STANDBYS)
        )
    ]


def moves_any(plan: Plan, members: Iterable[MemberRow]) -> bool:
    """Return whether a plan takes shards from members that are reading them."""
    return any(
        not _has_all(plan[m.client_id].range, m.range or ())
        for m in members
        if m.state in ("up", "leaving")
    )


def _has_all(range_: Range, parts: Range) -> bool:
    return all(
        any(
            arn == part.stream_arn and first <= part.first and part.last <= last
            for arn, first, last in range_
        )
        for part in parts
    )


def is_fully_consumed(members: Sequence[MemberRow], streams: Iterable[str]) -> bool:
    """Return whether the requested ones of these streams are read completely.

    Departing members count, since they go on reading until others have their ranges.
    Without assignable members the result is False.
    """
    receivers = assignable(members)
    requested = frozenset[str]().union(*(m.streams for m in receivers))
    departing = [m for m in members if is_departing(m)]
    parts = [part for m in [*receivers, *departing] for part in m.range or ()]
    return bool(receivers) and all(
        _tiles(parts, arn) for arn in requested.intersection(streams)
    )


def _tiles(parts: Iterable[Interval], arn: str) -> bool:
    reached = 0
    for _, first, last in sorted(part for part in parts if part.stream_arn == arn):
        if first > reached:
            return False
        reached = max(reached, last + 1)
    return reached == HASH_KEYS


class Change(NamedTuple):
    """How the members differ from those of the last plan."""

    joined: bool
    other: bool


def change(before: Sequence[MemberRow] | None, members: Sequence[MemberRow]) -> Change:
    """Return whether members joined, and whether anything else changed."""
    if before is None:
        return Change(joined=False, other=True)
    old = {m.client_id: _plan_inputs(m) for m in before}
    new = {m.client_id: _plan_inputs(m) for m in members}
    known = {client_id: new[client_id] for client_id in new if client_id in old}
    return Change(joined=len(new) > len(known), other=known != old)


def _plan_inputs(member: MemberRow) -> tuple[object, ...]:
    return member.weight, member.state, member.streams, member.label, member.drained


def has_drifted(
    plan: Plan,
    shards: Mapping[str, Sequence[int]],
    assignor_plan: Plan,
    members: Iterable[MemberRow],
) -> bool:
    """Return whether reshards made the shares so uneven that shards should move.

    A split or merge changes no range. Shards move only if the share of a client or a
    label differs from a new plan's by more than one shard and by more than a tenth.
    """
    now, then = shares(plan, shards), shares(assignor_plan, shards)
    labels = {m.client_id: m.label for m in members}
    if len({*labels.values()}) > 1:
        pairs = [*_pairs(now, then), *_pairs(_sums(now, labels), _sums(then, labels))]
    else:
        pairs = _pairs(now, then)
    return any(abs(a - share) > max(1, share // 10) for a, share in pairs)


def _pairs(now: Mapping[str, int], then: Mapping[str, int]) -> list[tuple[int, int]]:
    return [(now.get(name, 0), share) for name, share in then.items()]


def _sums(sizes: Mapping[str, int], labels: Mapping[str, str]) -> Counter[str]:
    sums = Counter[str]()
    for client_id, size in sizes.items():
        sums[labels.get(client_id, "")] += size
    return sums


def shares(plan: Plan, shards: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return how many shards each client of a plan gets."""
    return {
        client_id: sum(
            bisect_right(starts, interval.last) - bisect_left(starts, interval.first)
            for interval in part.range
            if (starts := shards.get(interval.stream_arn))
        )
        for client_id, part in plan.items()
    }
