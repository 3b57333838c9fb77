"""Assign hash-key ranges to members.

All streams that are requested by the same members form one row of *slots*, ordered by
ARN and hash key. A slot stands for a shard, and is its starting hash key. If members
request different streams, there are several rows, and the members' slots are balanced
over all rows together.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.balance import Pool, Weights, balance, shares_of
from kinesumer.model.streams import HASH_KEYS, Interval, Range

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Plan = dict[str, Range]

FREE = -1  # stands for the owner of a free slot


class Member(NamedTuple):
    """The properties of a client that an assignment depends on."""

    client_id: str
    weight: int
    streams: frozenset[str]  # the ARNs of the streams that it requests
    # The client's zone or cluster. The members of a label together get a fair share.
    label: str = ""
    max_shards: int | None = None


def assign_range(
    members: Sequence[Member], shards: Mapping[str, Sequence[int]]
) -> Plan:
    """Assign each member a contiguous part of each row, in order of the members.

    ``members`` are sorted by client id. ``shards`` holds each stream's open shards as
    ascending starting hash keys; a stream without shards counts as one slot. Streams
    that no member requests are left out. If all members request the same streams and
    have equal weights, their numbers of slots differ by at most one. Without labels, a
    row is cut at the same places as by Kinesumer for Go. With labels, each label's
    total differs from its fair share by less than one slot.

    No member gets more than ``max_shards`` slots. If too few slots are permitted, the
    last slots of each row belong to no member.
    """
    rows = make_rows(members, shards)
    pools, claims = [row.pool for row in rows], _weights_of(members)
    owned = [shares_of(claims, pool) for pool in pools]
    if len(rows) > 1 or any(
        size > claims.limits[member]
        for counts in owned
        for member, size in counts.items()
    ):
        owned = [dict.fromkeys(row.requesters, 0) for row in rows]
        balance(claims, pools, owned)
    owners = []
    for row, counts in zip(rows, owned, strict=True):
        owner = [m for m in row.requesters for _ in range(counts[m])]
        owners.append(owner + [FREE] * (len(row.slots) - len(owner)))
    return plan_of(members, rows, owners)


def assign_sticky(
    members: Sequence[Member],
    shards: Mapping[str, Sequence[int]],
    previous: Mapping[str, Range],
) -> Plan:
    """Assign all ranges again, and move as few shards as possible.

    The arguments are those of ``assign_range``; ``previous`` holds each client's range.
    Adjacent slots of one owner form a run. A member that owns too many slots gives up
    slots at the ends of its shortest runs. Free slots go first to the members that own
    an adjacent slot, so that each member has few runs. Members also give up the slots
    that their label owns above its share.
    """
    rows = make_rows(members, shards)
    owners = [previous_owners(row, members, previous) for row in rows]
    owned = [
        dict.fromkeys(row.requesters, 0) | Counter(filter(FREE.__lt__, owner))
        for row, owner in zip(rows, owners, strict=True)
    ]
    balance(_weights_of(members), [row.pool for row in rows], owned)
    for owner, counts in zip(owners, owned, strict=True):
        _release_excess(owner, counts)
        _fill(owner, counts)
    return plan_of(members, rows, owners)


# --- rows ----------------------------------------------------------------------------


class SlotRow(NamedTuple):
    """The streams that the same members request, in one sequence of slots."""

    requesters: tuple[int, ...]  # indexes of members, ascending
    # Pairs of stream ARN and starting hash key, ascending. Each stream's first key is
    # 0.
    slots: list[tuple[str, int]]

    @property
    def pool(self) -> Pool:
        """The argument for ``balance()`` that describes this row."""
        return Pool(self.requesters, len(self.slots))


def _weights_of(members: Sequence[Member]) -> Weights:
    limits = [inf if m.max_shards is None else m.max_shards for m in members]
    return Weights([m.weight for m in members], [m.label for m in members], limits)


def make_rows(
    members: Sequence[Member], shards: Mapping[str, Sequence[int]]
) -> list[SlotRow]:
    """Group the streams by the members that request them, fewest members first."""
    slots: dict[tuple[int, ...], list[tuple[str, int]]] = {}
    for arn in sorted(shards):
        requesters = tuple(
            i for i, member in enumerate(members) if arn in member.streams
        )
        if requesters:
            row = slots.setdefault(requesters, [])
            row.append((arn, 0))
            row.extend((arn, key) for key in shards[arn][1:])
    return [
        SlotRow(requesters, slots[requesters])
        for requesters in sorted(
            slots, key=lambda requesters: (len(requesters), requesters)
        )
    ]


def plan_of(
    members: Sequence[Member],
    rows: Sequence[SlotRow],
    owners: Sequence[Sequence[int]],
) -> Plan:
    """Turn the slots' owners into intervals without overlaps.

    The intervals cover each stream, except for the slots that are FREE.
    """
    intervals: list[list[Interval]] = [[] for _ in members]
    for row, owner in zip(rows, owners, strict=True):
        runs = groupby(zip(row.slots, owner, strict=True), lambda it: (it[0][0], it[1]))
        begun = [(arn, holder, next(run)[0][1]) for (arn, holder), run in runs]
        ends = [key - 1 if key else HASH_KEYS - 1 for _, _, key in begun[1:]]
        ends.append(HASH_KEYS - 1)
        for (arn, holder, first), last in zip(begun, ends, strict=True):
            if holder != FREE:
                intervals[holder].append(Interval(arn, first, last))
    return {
        member.client_id: tuple(sorted(ranges))
        for member, ranges in zip(members, intervals, strict=True)
    }


def previous_owners(
    row: SlotRow, members: Sequence[Member], previous: Mapping[str, Range]
) -> list[int]:
    """Return each slot's previous owner or FREE. Of two owners, return the first."""
    owner = [FREE] * len(row.slots)
    for requester in row.requesters:
        for arn, first, last in previous.get(members[requester].client_id, ()):
            begin = bisect_left(row.slots, (arn, first))
            for slot in range(begin, bisect_right(row.slots, (arn, last))):
                if owner[slot] == FREE:
                    owner[slot] = requester
    return owner


# --- which slots ---------------------------------------------------------------------


def _release_excess(owner: list[int], counts: Mapping[int, int]) -> None:
    """Free the slots that members own beyond their counts.

    The slots are taken from the ends of each member's shortest runs.
    """
    excess = Counter(filter(FREE.__lt__, owner))
    excess.subtract(counts)
    for begin, end in sorted(runs_of(owner), key=lambda run: run[1] - run[0]):
        holder = owner[begin]
        count = min(excess[holder], end - begin)
        if count > 0:
            excess[holder] -= count
            owner[end - count : end] = [FREE] * count


def _fill(owner: list[int], counts: Mapping[int, int]) -> None:
    """Assign free slots to members that own fewer slots than their counts.

    The owners of adjacent slots come first.
    """
    missing = dict(counts)
    for holder, number in Counter(filter(FREE.__lt__, owner)).items():
        missing[holder] -= number
    for begin, end in _free_runs(owner):
        if begin:
            begin += _give(owner, begin, end, owner[begin - 1], missing)
        if end < len(owner):
            receiver = owner[end]
            _give(owner, max(begin, end - missing[receiver]), end, receiver, missing)
    for begin, end in _free_runs(owner):
        # If limits are low, slots remain that no member may take.
        while begin < end and any(missing.values()):
            receiver = max(missing, key=lambda m: (missing[m], -m))
            begin += _give(owner, begin, end, receiver, missing)


def _give(
    owner: list[int], begin: int, end: int, receiver: int, missing: dict[int, int]
) -> int:
    """Assign the first slots of a free run to a member, and return their number."""
    count = min(end - begin, missing[receiver])
    owner[begin : begin + count] = [receiver] * count
    missing[receiver] -= count
    return count


def _free_runs(owner: Sequence[int]) -> list[tuple[int, int]]:
    return [run for run in runs_of(owner) if owner[run[0]] == FREE]


def runs_of(owner: Sequence[int]) -> list[tuple[int, int]]:
    """Return the start and end of each run of slots with one owner."""
    cuts = [i for i in range(1, len(owner)) if owner[i] != owner[i - 1]]
    return list(zip([0, *cuts], [*cuts, len(owner)], strict=True))
