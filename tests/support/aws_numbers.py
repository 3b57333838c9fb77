"""Make sequence numbers like those of AWS."""

from __future__ import annotations

CREATED_AT = 0x5BF4E5C2
"""The time in seconds at which the shards were created."""


def aws_number(shard: int, taken: int, counter: int) -> str:
    """Return the number of a record that AWS took at a time, given in seconds."""
    hexa = f"2{CREATED_AT:09x}{shard % 16:x}{counter:016x}00{taken:09x}{shard:08x}2"
    return str(int(hexa, 16))
