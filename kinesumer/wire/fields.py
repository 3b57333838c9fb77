"""A row's attributes, read as what they must be: what else stands there is refused."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from kinesumer.errors import CorruptRowError
from kinesumer.model.positions import WHOLE_RECORD, Position, Tip
from kinesumer.model.streams import HASH_KEYS, YEAR_10000, Interval, Range, Start

if TYPE_CHECKING:
    from kinesumer.model.rows import Row, Value

MAX_COUNT = 10**18
"""Nothing is ever counted so far; DynamoDB's numbers have room for more."""

T = TypeVar("T", str, int, bool, frozenset[str])


def read_range(row: Row, streams: frozenset[str]) -> Range | None:
    """Return the attribute ``range``, None where there is none."""
    if "range" not in row:
        return None
    text, names = get(row, "range", str), sorted(streams)
    try:
        return tuple(_interval(part, names) for part in text.split(",") if part)
    except (ValueError, IndexError):
        raise corrupt(row, "range") from None


def _interval(part: str, names: list[str]) -> Interval:
    place, _, ends = part.partition(":")
    first_text, _, last_text = ends.partition("-")
    first = int(first_text, 16)
    last = int(last_text, 16) if last_text else HASH_KEYS - 1
    if int(place) < 0 or not first <= last < HASH_KEYS:
        raise ValueError
    return Interval(names[int(place)], first, last)


def read_position(row: Row) -> Position | None:
    """Return the stored position, None where there is none."""
    if "sequence_number" not in row:
        return None
    number = get(row, "sequence_number", str)
    if not is_sequence_number(number):
        raise corrupt(row, "sequence_number")
    if "sub_sequence_number" not in row:
        return Position(number)
    return Position(number, count(row, "sub_sequence_number", last=WHOLE_RECORD))


def read_tip(row: Row) -> Tip | None:
    """Return the attribute ``tip``, None where there is none, or another one.

    A tip only proves that nothing was lost. Without one, reading goes on all the same.
    """
    found = _TIP.fullmatch(str(row.get("tip", "")))
    if found is None:
        return None
    moment, number, sub = found.groups()
    try:
        at = datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError):
        return None
    within = None if sub is None else int(sub)
    return Tip(at, Position(number, within)) if at >= 0 else None


_TIP = re.compile(r"([-0-9T:.]{19,26}Z) ([0-9]{1,129})(?::([0-9]{1,15}))?", re.ASCII)


def read_start(row: Row) -> Start:
    """Return the attribute ``start``."""
    type_, _, timestamp = get(row, "start", str).partition(" ")
    moment = read_seconds(row, "start", timestamp) if timestamp else None
    known = {"TRIM_HORIZON": False, "LATEST": False, "AT_TIMESTAMP": True}
    if known.get(type_) is not (moment is not None):
        raise corrupt(row, "start")
    return Start(type=type_, timestamp=moment)


def is_sequence_number(text: str) -> bool:
    """Tell whether text can be a record's number: AWS allows up to 129 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 129


def read_hash_key(row: Row, name: str, text: str) -> int:
    """Return a hash key from its 32 hex digits."""
    # As we write it, and no other way: the text is the key of the row.
    if not _HASH_KEY.fullmatch(text):
        raise corrupt(row, name)
    return int(text, 16)


_HASH_KEY = re.compile(r"[0-9a-f]{32}")
SHARD_ID = re.compile(r"[a-zA-Z0-9_.-]{1,128}")


def read_seconds(row: Row, name: str, text: str) -> float:
    """Return a time in seconds since 1970."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < YEAR_10000:
        raise corrupt(row, name)
    return seconds


def count(
    row: Row,
    name: str,
    default: int | None = None,
    *,
    first: int = 0,
    last: int = MAX_COUNT,
) -> int:
    """Return a number within bounds. Raises CorruptRowError."""
    number = get(row, name, int, default)
    if not first <= number <= last:
        raise corrupt(row, name)
    return number


def get(row: Row, name: str, type_: type[T], default: T | None = None) -> T:
    """Return an attribute of just this type. Raises CorruptRowError."""
    value: Value | None = row.get(name, default)
    plain = frozenset if type_ not in (str, int, bool) else type_
    if type(value) is not plain:
        raise corrupt(row, name)
    return value  # type: ignore[return-value]


def corrupt(row: Row, name: str) -> CorruptRowError:
    """Return the error that names a row and what is wrong in it."""
    problem = f"{_quote(row[name])} can't be read" if name in row else "is missing"
    return CorruptRowError(
        f"state store row pk={row.get('pk')!r} sk={row.get('sk')!r}: "
        f"attribute {name} {problem}; was it written by hand or by another version?"
    )


def _quote(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
