"""Who holds the leases of a KCL fleet, and what arrives in their shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.migration.kcl import SHARD_END
from kinesumer.operations.distribution import Client, Held, Spread

if TYPE_CHECKING:
    from kinesumer.migration.kcl import Table

KIB = 1024


def spread_of(table: Table) -> Spread:
    """Return who holds what: workers without a lease aren't in such a table.

    The throughput is what workers of KCL 3 note in their leases.
    """
    leases = [lease for lease in table.leases if lease.checkpoint != SHARD_END]
    owners = sorted({lease.owner for lease in leases if lease.owner})
    return Spread(
        [Client(owner) for owner in owners],
        [
            Held(
                lease.owner,
                None if lease.throughput is None else lease.throughput * KIB,
            )
            for lease in leases
        ],
    )
