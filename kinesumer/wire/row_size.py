"""Count the bytes of rows as DynamoDB does, which bills a write for each started KB."""

from __future__ import annotations

from kinesumer.model.rows import Row, Value

WRITE_UNIT_BYTES = 1024
# The attributes of a member's row that heartbeats write if there is room for them.
REPORTS = ("load", "incidents", "failures")
# What a row may grow by until the next heartbeat: longer counters and ranges. It also
# covers the byte for each element of a set that some descriptions of DynamoDB count.
SLACK_BYTES = 64


def row_bytes(row: Row) -> int:
    """Return the size of a row as DynamoDB counts it."""
    return sum([len(name) + _value_bytes(value) for name, value in row.items()])


def room_bytes(row: Row) -> int:
    """Return the room for a member's reports in the last write unit of its row.

    A heartbeat then costs no more than the rest of the row costs anyway.
    """
    rest = {name: value for name, value in row.items() if name not in REPORTS}
    names = sum(map(len, REPORTS))
    return max(0, -row_bytes(rest) % WRITE_UNIT_BYTES - names - SLACK_BYTES)


def _value_bytes(value: Value) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return (len(str(abs(value))) + 1) // 2 + 1
    return sum(len(part.encode()) for part in value)
