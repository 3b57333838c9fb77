"""All named mutants, by section of the protocol."""

from __future__ import annotations

from tests.mutants import (
    ends,
    moving,
    planning,
    records,
    sessions,
    shard_writes,
    writes,
)

MUTANTS = {
    made.name: made
    for module in (writes, shard_writes, sessions, planning, moving, ends, records)
    for made in module.MUTANTS
}
