"""All named mutants, by section of the protocol."""

from __future__ import annotations

from tests.system.mutants import (
    admin,
    hand_over,
    handlers,
    member_writes,
    operator_changes,
    plan,
    record_path,
    sessions,
    shard_end,
    shard_writes,
)

LISTS = (
    member_writes,
    shard_writes,
    sessions,
    plan,
    hand_over,
    shard_end,
    record_path,
    admin,
    operator_changes,
    handlers,
)
MUTANTS = {made.name: made for part in LISTS for made in part.MUTANTS}
