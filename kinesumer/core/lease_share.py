"""Decide which leases of a KCL fleet a client takes, by the rules of KCL's workers.

A worker's share of the leases is their number, divided by the number of workers that
have a lease, and rounded up. Up to this share, a worker takes available leases, or
steals from a worker that has more. A lease that no worker takes soon is taken whatever
the share is. So is one that a client has released for another client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class LeaseUse(NamedTuple):
    """The use of one lease of a shard that isn't read to its end."""

    key: str
    worker: str  # the worker that has the lease, or had it; "" if it had none
    is_foreign: bool  # whether this worker isn't a client of the group
    # Whether the lease has no owner, or wasn't renewed for the failover time.
    is_available: bool
    # Whether the lease is to be taken beyond the share: no worker took it soon, or
    # another client of the group has released it for this one.
    is_due: bool
    in_reach: bool  # whether the group's plan permits this client to take the lease


def fair_share(leases: int, workers: int) -> int:
    """Return how many leases each worker has if all have the same number."""
    return 1 if workers >= leases else -(-leases // workers)


def leases_to_take(uses: Sequence[LeaseUse], me: str, max_steals: int) -> list[str]:
    """Return the leases in reach that the worker ``me`` may take, the first ones first.

    At most ``max_steals`` of them have an owner that renews its lease. Without foreign
    workers, the group's plan alone decides, so all available leases may be taken.
    """
    loads = Counter(use.worker for use in uses if not use.is_available)
    available = [use for use in uses if use.is_available and use.in_reach]
    if not any(use.is_foreign and not use.is_available for use in uses):
        return [use.key for use in available]
    share = fair_share(len(uses), len({*loads, me}))
    needed = share - loads[me]
    # Those that are due come first, and may exceed the share.
    available.sort(key=lambda use: not use.is_due)
    due = sum(use.is_due for use in available)
    taken = available[: max(needed, due, 0)]
    # Like KCL's workers, don't steal while there are leases without an owner.
    if not available and needed > 0:
        taken = _to_steal(uses, loads, share, needed)[:max_steals]
    return [use.key for use in taken]


def _to_steal(
    uses: Sequence[LeaseUse], loads: Counter[str], share: int, needed: int
) -> list[LeaseUse]:
    """Return leases of the workers with more than their share, most loaded first."""
    chosen: list[LeaseUse] = []
    candidates = [use for use in uses if use.is_foreign and use.in_reach]
    for worker, load in loads.most_common():
        count = min(needed - len(chosen), load - share)
        if count <= 0 and load == share and needed > 1 and not chosen:
            count = 1  # otherwise a new worker would get nothing if all have a share
        if count > 0:
            theirs = [use for use in candidates if use.worker == worker]
            chosen += theirs[:count]
    return chosen
