"""All named mutants, by section of the protocol."""

from __future__ import annotations

from tests.mutants import (
    ends,
    handling,
    heeding,
    moving,
    operating,
    planning,
    records,
    sessions,
    shard_writes,
    writes,
)

MUTANTS = {
    made.name: made
    for module in (
        writes,
        shard_writes,
        sessions,
        planning,
        moving,
        ends,
        records,
        operating,
        heeding,
        handling,
    )
    for made in module.MUTANTS
}
