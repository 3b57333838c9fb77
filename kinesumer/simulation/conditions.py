"""Conditions on rows and sizes of rows, as DynamoDB evaluates and bills them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.ports import AllOf, Compare

if TYPE_CHECKING:
    from kinesumer.model.rows import Row, Value
    from kinesumer.ports import Condition, Write

_NO_ROW: Row = {}
_KEYS = ("pk", "sk")


def holds(condition: Condition, row: Row | None) -> bool:
    """Return whether a condition holds for a row (None: the row doesn't exist)."""
    stored = _NO_ROW if row is None else row
    if isinstance(condition, Compare):
        return _test(condition, stored)
    if isinstance(condition, AllOf):
        return all(holds(part, stored) for part in condition.parts)
    return any(holds(part, stored) for part in condition.parts)


def _test(test: Compare, row: Row) -> bool:
    value = row.get(test.attribute)
    op = test.op
    if op == "exists":
        return value is not None
    if op == "absent":
        return value is None
    if value is None:
        return False
    if op == "=":
        return type(value) is type(test.value) and value == test.value
    if op in ("<", "<="):
        return _less(value, test.value, or_equal=op == "<=")
    size = _size_operand(value)
    return size is not None and _sizes(op, size, test.value)


def _less(value: Value, than: Value, *, or_equal: bool) -> bool:
    if isinstance(than, bool | frozenset):
        raise ValueError(f"DynamoDB orders no {type(than).__name__}: {than!r}")
    if isinstance(value, str) and isinstance(than, str):
        # Code points order as UTF-8's bytes do, which is DynamoDB's order.
        return value <= than if or_equal else value < than
    if type(value) is int and type(than) is int:
        return value <= than if or_equal else value < than
    return False


def _size_operand(value: Value) -> int | None:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, frozenset) else None


def _sizes(op: str, size: int, than: Value) -> bool:
    if type(than) is not int:
        raise ValueError(f"size is compared with a number, not {than!r}")
    if op == "size<":
        return size < than
    if op == "size=":
        return size == than
    raise ValueError(f"unknown operator {op!r}")


def applied(write: Write, before: Row | None) -> Row | None:
    """Return the row that a write leaves behind (None: it deletes)."""
    if write.delete:
        return None
    if write.replace or before is None:
        after: Row = dict(zip(_KEYS, write.key, strict=True))
    else:
        after = before.copy()
    after.update(write.set)
    for name in write.remove:
        after.pop(name, None)
    return after


def check_write(write: Write) -> None:
    """Refuse what DynamoDB would refuse as invalid. Raises ValueError."""
    if not all(write.key):
        raise ValueError(f"a key can't be empty: {write.key}")
    both = write.set.keys() & {*write.remove}
    if both:
        raise ValueError(f"set and removed in one write: {sorted(both)}")
    for name, value in write.set.items():
        if name in _KEYS:
            raise ValueError(f"a write can't change the key attribute {name!r}")
        if not isinstance(value, str | int | frozenset) or value == frozenset():
            raise ValueError(f"{name}={value!r} can't be stored")
        if name == "last_update" and not (isinstance(value, str) and value):
            raise ValueError(f"last_update is an index key, not {value!r}")


def row_bytes(row: Row | None) -> int:
    """Return the size of a row as DynamoDB counts it."""
    if row is None:
        return 0
    size = 0
    for name, value in row.items():
        if type(value) is str and value.isascii():
            size += len(name) + len(value)
        else:
            size += len(name) + _value_bytes(value)
    return size


def _value_bytes(value: Value) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    if isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return (len(str(abs(value))) + 1) // 2 + 1
    return sum(len(part.encode()) for part in value)


def index_units(before: Row | None, after: Row | None) -> int:
    """Return the write units that the index on ``last_update`` costs."""
    old = before.get("last_update") if before else None
    new = after.get("last_update") if after else None
    if old == new:
        return 0
    return (old is not None) + (new is not None)
