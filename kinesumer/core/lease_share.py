"""Decide which leases of a KCL fleet a client takes.

A client takes all leases that have no owner, or that have expired. So no shard waits
for a KCL worker, which looks for them once in two failover times. By the rules of KCL's
workers, it steals leases only up to its share, and only while there are none to take.
The share is the number of leases, divided by the number of workers that have a lease,
and rounded up.
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
    in_reach: bool  # whether the group's plan permits this client to take the lease


def fair_share(leases: int, workers: int) -> int:
    """Return how many leases each worker has if all have the same number."""
    return 1 if workers >= leases else -(-leases // workers)


def leases_to_take(uses: Sequence[LeaseUse], me: str, max_steals: int) -> list[str]:
    """Return the leases in reach that the worker ``me`` may take, the first ones first.

    At most ``max_steals`` of them have an owner that renews its lease.
    """
    available = [use.key for use in uses if use.is_available and use.in_reach]
    if available:
        return available
    loads = Counter(use.worker for use in uses if not use.is_available)
    share = fair_share(len(uses), len({*loads, me}))
    needed = share - loads[me]
    stolen = _to_steal(uses, loads, share, needed) if needed > 0 else []
    return [use.key for use in stolen[:max_steals]]


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
