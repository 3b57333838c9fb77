"""Share slots evenly among members, by weight, and also evenly among labels.

Rounding must not favour a label. For example, 500 slots are shared by two clusters of
100 members, and the members of the two clusters alternate in the order of ids. If
labels were ignored, each member of one cluster could get three slots, and each member
of the other cluster two. The clusters would have 300 and 200 slots instead of 250 each.
"""

from __future__ import annotations

from heapq import heapify, heapreplace
from itertools import accumulate, pairwise
from math import gcd, inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Weights(NamedTuple):
    """The weight and label of each member, by index."""

    weights: Sequence[int]
    labels: Sequence[str]  # members without a label share the label ""
    limits: Sequence[float]  # the greatest number of slots, or infinity

    def groups(self, requesters: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """Return the members of each label, sorted by label."""
        members: dict[str, list[int]] = {}
        for requester in sorted(requesters, key=lambda m: (self.labels[m], m)):
            members.setdefault(self.labels[requester], []).append(requester)
        return {label: tuple(group) for label, group in members.items()}


class Pool(NamedTuple):
    """A number of slots, and the members that request them."""

    requesters: tuple[int, ...]  # indexes of members, ascending
    slots: int


def shares_of(members: Weights, pool: Pool) -> dict[int, int]:
    """Return how many slots each member gets of a single pool.

    If there are several labels, the members are sorted by label before the pool is cut,
    so that rounding changes a label's total by less than one slot. In this case the
    cuts are computed with integers, so that exact shares stay exact.
    """
    groups = members.groups(pool.requesters)
    order = [requester for group in groups.values() for requester in group]
    weights = [members.weights[requester] for requester in order]
    if len(groups) < 2:
        return dict(zip(order, shares(pool.slots, weights), strict=True))
    whole = sum(weights)
    parts = accumulate(weights, initial=0)
    cuts = [(2 * part * pool.slots + whole) // (2 * whole) for part in parts]
    sizes = (after - before for before, after in pairwise(cuts))
    return dict(zip(order, sizes, strict=True))


def shares(slots: int, weights: Sequence[int]) -> list[int]:
    """Return each member's number of slots, given the members' weights in order.

    With N equal weights and S slots, cut i is ``round(i * (S / N))``, in floating point
    and with halves rounded up, as in Kinesumer for Go. Integers or Python's ``round``
    would give other cuts for some S and N.
    """
    common = gcd(*weights)
    each = slots / (sum(weights) // common)
    sizes, total, cut = [], 0, 0
    for weight in weights:
        total += weight // common
        size = _round(total * each) - cut
        cut += size
        sizes.append(size)
    return sizes


def _round(value: float) -> int:
    """Round a non-negative number, halves up."""
    whole = int(value)
    return whole + (value - whole >= 0.5)


def balance(
    members: Weights, pools: Sequence[Pool], owned: Sequence[dict[int, int]]
) -> None:
    """Change ``owned`` so that members own all slots, as evenly as possible.

    ``owned`` holds each member's number of slots, for each pool. With a single pool,
    each label gets its share, rounded down or up, and the label's members share these
    slots evenly. With several pools, the members' totals are made as even as possible
    first. Labels only decide between results that are equally even for the members.

    No member gets more slots than its limit. Slots stay free if the limits are too low.
    """
    _cut_to_limits(members.limits, owned)
    if len(pools) > 1:
        _balance(members, pools, owned)
        _even_labels(members, owned)
        return
    for pool, counts in zip(pools, owned, strict=True):
        groups = members.groups(pool.requesters)
        totals = _totals(members, groups, pool.slots, counts)
        for label, requesters in groups.items():
            part = {requester: counts[requester] for requester in requesters}
            _shrink(members.weights, part, totals[label])
            _balance(members, [Pool(requesters, totals[label])], [part])
            counts.update(part)


def _totals(
    members: Weights,
    groups: Mapping[str, Sequence[int]],
    slots: int,
    counts: Mapping[int, int],
) -> dict[str, int]:
    """Return how many slots each label gets: its share, rounded down or up.

    If the limits of a label's members are lower than that, the other labels share the
    rest.
    """
    totals: dict[str, int] = {}
    while True:
        others = {name: group for name, group in groups.items() if name not in totals}
        found = _label_shares(members.weights, others, slots, counts)
        limits = {name: sum(members.limits[m] for m in others[name]) for name in others}
        full = {name: int(limits[name]) for name in found if found[name] > limits[name]}
        totals |= full or found
        if not full:
            return totals
        slots -= sum(full.values())


def _label_shares(
    member_weights: Sequence[int],
    groups: Mapping[str, Sequence[int]],
    slots: int,
    counts: Mapping[int, int],
) -> dict[str, int]:
    """Return each label's share of the slots, rounded down or up.

    Labels that already own more than the rounded-down share are rounded up first, so
    that fewer slots move.
    """
    weights = {
        label: sum(member_weights[m] for m in group) for label, group in groups.items()
    }
    owned = {label: sum(counts[m] for m in group) for label, group in groups.items()}
    whole = sum(weights.values())
    totals = {label: slots * weight // whole for label, weight in weights.items()}
    order = sorted(
        (label for label in weights if slots * weights[label] % whole),
        key=lambda label: (
            owned[label] <= totals[label],
            -(slots * weights[label] % whole),
            label,
        ),
    )
    for label in order[: slots - sum(totals.values())]:
        totals[label] += 1
    return totals


def _cut_to_limits(limits: Sequence[float], owned: Sequence[dict[int, int]]) -> None:
    """Take slots from the members that own more than their limits."""
    for member, limit in enumerate(limits):
        room = limit
        for counts in owned:
            if member in counts:
                counts[member] = int(min(counts[member], room))
                room -= counts[member]


def _shrink(weights: Sequence[int], counts: dict[int, int], total: int) -> None:
    """Take slots from the members that own the most, until ``total`` are left."""
    for _ in range(sum(counts.values()) - total):
        giver = max(counts, key=lambda m: (2 * counts[m] - 1) / weights[m])
        counts[giver] -= 1


def _balance(
    members: Weights, pools: Sequence[Pool], owned: Sequence[dict[int, int]]
) -> None:
    """Assign free slots, then move slots while that makes the members more even.

    Without limits, the result has the smallest possible sum of (slots² / weight) over
    the members.
    """
    totals = _sizes(members, owned)
    for pool, counts in zip(pools, owned, strict=True):
        heap = [(_price(members, totals, m), m) for m in pool.requesters]
        heapify(heap)
        for _ in range(pool.slots - sum(counts.values())):
            price, receiver = heap[0]
            if price == inf:
                break
            counts[receiver] += 1
            totals[receiver] += 1
            heapreplace(heap, (_price(members, totals, receiver), receiver))
    while _make_room(members, totals, pools, owned):
        pass
    while chain := _improvement(members, totals, owned):
        _pass_on(chain, owned)
        totals[chain[0][0]] -= 1
        totals[chain[-1][2]] += 1


def _price(members: Weights, totals: Sequence[int], member: int) -> float:
    """Return how uneven one more slot makes a member; infinity if it is full."""
    if totals[member] >= members.limits[member]:
        return inf
    return (2 * totals[member] + 1) / members.weights[member]


def _make_room(
    members: Weights,
    totals: list[int],
    pools: Sequence[Pool],
    owned: Sequence[dict[int, int]],
) -> bool:
    """Assign a free slot to a full member that can pass on a slot of another pool."""
    for pool, counts in zip(pools, owned, strict=True):
        if sum(counts.values()) == pool.slots:
            continue
        for requester in pool.requesters:
            chains = _chains(requester, owned)
            receiver = min(chains, key=lambda m: (_price(members, totals, m), m))
            if _price(members, totals, receiver) < inf:
                counts[requester] += 1
                totals[receiver] += 1
                _pass_on(chains[receiver], owned)
                return True
    return False


# Moves of one slot each, as (giver, pool index, receiver). The receiver of one move is
# the giver of the next.
_Chain = list[tuple[int, int, int]]


def _pass_on(chain: _Chain, owned: Sequence[dict[int, int]]) -> None:
    for giver, pool, receiver in chain:
        owned[pool][giver] -= 1
        owned[pool][receiver] += 1


def _sizes(members: Weights, owned: Sequence[Mapping[int, int]]) -> list[int]:
    every = range(len(members.weights))
    return [sum(counts.get(m, 0) for counts in owned) for m in every]


def _improvement(
    members: Weights, totals: Sequence[int], owned: Sequence[Mapping[int, int]]
) -> _Chain:
    """Return moves that make the totals more even, or no moves.

    Quotients are compared as floats. This is safe, since rounding keeps their order.
    """
    requesters = {requester for counts in owned for requester in counts}
    worth = {m: (2 * totals[m] - 1) / members.weights[m] for m in requesters}
    price = {m: _price(members, totals, m) for m in requesters}
    cheapest = min(price.values(), default=0.0)
    givers = [m for m in requesters if worth[m] > cheapest]
    for giver in sorted(givers, key=lambda m: (-worth[m], m)):
        chains = _chains(giver, owned)
        receiver = min(chains, key=lambda m: (price[m], m))
        if worth[giver] > price[receiver]:
            return chains[receiver]
    return []


def _chains(giver: int, owned: Sequence[Mapping[int, int]]) -> dict[int, _Chain]:
    """Return the shortest chain of moves from a member to each reachable member."""
    chains: dict[int, _Chain] = {giver: []}
    waiting, used = [giver], set[int]()
    for member in waiting:
        for pool, counts in enumerate(owned):
            if pool in used or not counts.get(member):
                continue
            used.add(pool)
            for receiver in counts:
                if receiver not in chains:
                    chains[receiver] = [*chains[member], (member, pool, receiver)]
                    waiting.append(receiver)
    return chains


def _even_labels(members: Weights, owned: Sequence[dict[int, int]]) -> None:
    """Even out the labels, by moves that keep the members as even as they are."""
    requesters = sorted({requester for counts in owned for requester in counts})
    groups = list(members.groups(requesters).values())
    while len(groups) > 1 and (chain := _label_move(members, groups, owned)):
        _pass_on(chain, owned)


def _label_move(
    members: Weights,
    groups: Sequence[Sequence[int]],
    owned: Sequence[Mapping[int, int]],
) -> _Chain:
    """Return moves that make labels more even and members no less even, or no moves."""
    weights, sizes = members.weights, _sizes(members, owned)
    worth, price = dict[int, float](), dict[int, float]()
    for group in groups:
        size, weight = (sum(of[m] for m in group) for of in (sizes, weights))
        worth.update(dict.fromkeys(group, (2 * size - 1) / weight))
        price.update(dict.fromkeys(group, (2 * size + 1) / weight))
    tried = set[tuple[object, ...]]()
    for giver in sorted(worth, key=lambda m: (-worth[m], m)):
        # Skip a member that has the same values as a former one: it reaches the same
        # members.
        gives = tuple(pool for pool, counts in enumerate(owned) if counts.get(giver))
        kind = worth[giver], sizes[giver], weights[giver], gives
        if kind in tried:
            continue
        tried.add(kind)
        chains = _chains(giver, owned)
        lost = (2 * sizes[giver] - 1) / weights[giver]
        alike = [m for m in chains if _price(members, sizes, m) == lost]
        receiver = min(alike, key=lambda m: (price[m], m), default=giver)
        if price[receiver] < worth[giver]:
            return chains[receiver]
    return []
