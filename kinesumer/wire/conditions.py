"""Evaluate a write's condition, and apply a write, as DynamoDB does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from kinesumer.model.rows import Row
from kinesumer.ports import AllOf, Compare, Condition, Write

KEYS = ("pk", "sk")
_NO_ROW: Row = {}


def holds(condition: Condition, row: Row | None) -> bool:
    """Return True if a condition holds for a row. None stands for a missing row."""
    stored = _NO_ROW if row is None else row
    if isinstance(condition, Compare):
        return _test(condition, stored)
    decide = all if isinstance(condition, AllOf) else any
    return decide(holds(part, stored) for part in condition.parts)


def _test(test: Compare, row: Row) -> bool:
    value, op, than = row.get(test.attribute), test.op, test.value
    if op == "exists":
        return value is not None
    if op == "absent":
        return value is None
    if value is None:
        return False
    if op == "=":
        return type(value) is type(than) and value == than
    if op in ("size<", "size="):
        if type(than) is not int:
            raise ValueError(f"size must be compared with a number, not {than!r}")
        if isinstance(value, int):
            return False
        size = len(value.encode()) if isinstance(value, str) else len(value)
        return size < than if op == "size<" else size == than
    if op not in ("<", "<="):
        raise ValueError(f"unknown operator {op!r}")
    if isinstance(than, bool | frozenset):
        raise ValueError(f"DynamoDB can't order a {type(than).__name__}: {than!r}")
    if type(value) is not type(than):
        return False
    # DynamoDB orders text by UTF-8 bytes, which is the order of code points.
    compare: Callable[[Any, Any], bool] = operator.le if op == "<=" else operator.lt
    return compare(value, than)


def applied(write: Write, before: Row | None) -> Row | None:
    """Return the row after a write, or None if the write deletes the row."""
    if write.delete:
        return None
    if write.replace or before is None:
        after: Row = dict(zip(KEYS, write.key, strict=True))
    else:
        after = before.copy()
    after.update(write.set)
    for name in write.remove:
        after.pop(name, None)
    return after
