"""Plan which members get which ranges, and which rows must change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from kinesumer.core.assignment import Member, assign_range
from kinesumer.core.claims import contains
from kinesumer.core.load_assignor import assign_load
from kinesumer.model.rows import CLIENT, MemberRow
from kinesumer.model.streams import HASH_KEYS, Interval, Range

# The number of clients, those with the lowest ids, that poll all members. One of them
# replaces a dead leader. A living leader may have a higher id.
STANDBYS = 3
# Standbys try to lead in the order of their indexes, with this delay between them. The
# others try after them, at random times. Their indexes mean little, since dead clients
# may come before them.
STANDBY_DELAY_SECONDS = 0.2
OTHERS_DELAY_SECONDS = 2.0


class Assignment(NamedTuple):
    """One member's part of a plan."""

    index: int  # type: ignore[assignment] # hides tuple.index()
    range: Range
    syncs: frozenset[str]


Plan = dict[str, Assignment]  # by client id


def election_delay_seconds(index: int, jitter: Callable[[], float]) -> float:
    """Return how long a client waits before it tries to replace a dead leader.

    ``index`` is its position among the clients that may lead. ``jitter()`` is evenly
    distributed from 0 to 1.
    """
    delay = min(index, STANDBYS) * STANDBY_DELAY_SECONDS
    return delay if index < STANDBYS else delay + jitter() * OTHERS_DELAY_SECONDS


def live_clients(members: Iterable[MemberRow]) -> list[MemberRow]:
    """Return the clients that aren't marked dead, sorted by id.

    Spark queries are left out, since plans give them no shards.
    """
    clients = (m for m in members if not m.dead and m.kind == CLIENT)
    return sorted(clients, key=lambda m: m.client_id)


def is_departing(member: MemberRow) -> bool:
    """Return whether a member is leaving or drained.

    A departing member continues to read until other members have its shards.
    """
    return member.drained or member.state == "leaving"


def assignable(members: Sequence[MemberRow]) -> list[MemberRow]:
    """Return the live members that get shards.

    Departing members get none. Degraded and missing members get none either, as long as
    at least half of the members that stay are healthy.
    """
    staying = [m for m in members if not is_departing(m)]
    well = [m for m in staying if m.state not in ("degraded", "missing")]
    # If most members are unhealthy, they probably share one cause, such as an outage of
    # Kinesis, and moving shards wouldn't help.
    return well if 2 * len(well) >= len(staying) else staying


class Work(NamedTuple):
    """The work of the shards of each stream, in the order of their hash keys."""

    of_shards: Mapping[str, Sequence[int]]
    is_known: bool  # false if the work of some shards wasn't measured yet


def make_plan(
    members: Sequence[MemberRow],
    shards: Mapping[str, Sequence[int]],
    assignor: Literal["range", "load"],
    synced_by_leader: frozenset[str],
    work: Work | None = None,
) -> Plan:
    """Return a plan that assigns all shards that ``max_shards`` permits.

    ``shards`` holds the starting hash keys of each stream's open shards. The leader
    syncs the shard rows of the streams in ``synced_by_leader`` itself. The assignor
    ``load`` needs ``work``.
    """
    receivers = receivers_of(members)
    if assignor == "load":
        assert work is not None
        previous = previous_ranges(members)
        ranges, _ = assign_load(
            receivers, shards, work.of_shards, previous, is_known=work.is_known
        )
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


def receivers_of(members: Sequence[MemberRow]) -> list[Member]:
    """Return the members that get shards, for an assignor."""
    return [
        Member(m.client_id, m.weight, m.streams, m.label, m.max_shards)
        for m in assignable(members)
    ]


def previous_ranges(members: Iterable[MemberRow]) -> dict[str, Range]:
    """Return the ranges of the members that a plan has included, by client id."""
    return {m.client_id: m.range for m in members if m.range is not None}


def _assign_syncs(
    members: Sequence[MemberRow], synced_by_leader: frozenset[str]
) -> dict[str, list[str]]:
    """Return the streams whose shard rows each member syncs, as the leader can't.

    A stream is assigned to the first member that requests it.
    """
    syncs: dict[str, list[str]] = {}
    assigned = set(synced_by_leader)
    for member in members:
        for arn in sorted(member.streams - assigned):
            syncs.setdefault(member.client_id, []).append(arn)
            assigned.add(arn)
    return syncs


def to_assign(plan: Plan, members: Sequence[MemberRow]) -> list[MemberRow]:
    """Return the members whose rows differ from the plan."""
    return [
        member
        for member in members
        if (part := plan.get(member.client_id)) is not None
        # A member that no longer requests one of the plan's streams waits for the next
        # plan.
        and all(interval.stream_arn in member.streams for interval in part.range)
        and (
            member.range != part.range
            or member.syncs != part.syncs
            or member.index is None
            # All indexes from STANDBYS on mean the same, so a change among them causes
            # no write.
            or min(member.index, STANDBYS) != min(part.index, STANDBYS)
        )
    ]


def moves_any(plan: Plan, members: Iterable[MemberRow]) -> bool:
    """Return whether a plan takes shards from members that are reading them."""
    return any(
        not contains(plan[m.client_id].range, *part)
        for m in members
        if m.state in ("up", "leaving")
        for part in m.range or ()
    )


def is_fully_consumed(members: Sequence[MemberRow], streams: Iterable[str]) -> bool:
    """Return whether members read all shards of the requested streams.

    Departing members count, since they continue until others have their ranges.
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
    """The kinds of changes of the members since the last plan."""

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
    m = member
    return m.weight, m.state, m.streams, m.label, m.max_shards, m.drained


def has_drifted(
    plan: Plan,
    shards: Mapping[str, Sequence[int]],
    assignor_plan: Plan,
    members: Collection[MemberRow],
) -> bool:
    """Return whether reshards made the shares so uneven that shards should move.

    A split or merge changes no range. Shards move only if the share of a client or a
    label differs from its share in a new plan by more than one shard and by more than a
    tenth. They also move if a client has more than its ``max_shards``, or if clients
    with ``max_shards`` can take shards that belong to no client.
    """
    if exceeds_limits(plan, shards, assignor_plan, members):
        return True
    now, then = shares(plan, shards), shares(assignor_plan, shards)
    labels = {m.client_id: m.label for m in members}
    if len({*labels.values()}) > 1:
        pairs = [*_pairs(now, then), *_pairs(_sums(now, labels), _sums(then, labels))]
    else:
        pairs = _pairs(now, then)
    return any(abs(a - share) > max(1, share // 10) for a, share in pairs)


def exceeds_limits(
    plan: Plan,
    shards: Mapping[str, Sequence[int]],
    assignor_plan: Plan,
    members: Iterable[MemberRow],
) -> bool:
    """Return whether a client has more than ``max_shards``, or shards lie idle.

    Shards lie idle if they belong to no client, but to one in the assignor's plan.
    """
    limits = {m.client_id: m.max_shards for m in members if m.max_shards is not None}
    if not limits:
        return False
    now, then = shares(plan, shards), shares(assignor_plan, shards)
    return sum(now.values()) < sum(then.values()) or any(
        now.get(client_id, 0) > limit for client_id, limit in limits.items()
    )


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
