"""Parses the attributes of rows, and raises CorruptRowError for invalid ones."""

from __future__ import annotations

import math
import re
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from kinesumer.errors import ConfigurationError, CorruptRowError
from kinesumer.model.positions import WHOLE_RECORD, Position, Tip
from kinesumer.model.rows import NO_DEATHS, Deaths, Row, Value
from kinesumer.model.streams import (
    HASH_KEYS,
    YEAR_10000,
    FanOutUse,
    Interval,
    Range,
    Start,
)

# A row of 400 KB, the limit of DynamoDB, has no room for more parts of a range with
# whole hash keys.
MAX_RANGE_PARTS = 5000
# No counter reaches this number. DynamoDB's numbers can be greater.
MAX_COUNT = 10**18
# The attribute that names what the owner of an isolated shard gave to user code.
TRIED = "tried"

T = TypeVar("T", str, int, bool, frozenset[str])


def read_range(row: Row, streams: frozenset[str]) -> Range | None:
    """Return the attribute ``range``, or None if it is missing.

    Its intervals are in order, and do not overlap.
    """
    if "range" not in row:
        return None
    text, names = get(row, "range", str), sorted(streams)
    if text.count(",") >= MAX_RANGE_PARTS:
        raise corrupt(row, "range")
    try:
        found = tuple(_interval(part, names) for part in text.split(",") if part)
    except (ValueError, IndexError):
        raise corrupt(row, "range") from None
    if any(b[:2] <= (a.stream_arn, a.last) for a, b in pairwise(found)):
        raise corrupt(row, "range")  # its parts overlap, or are not in order
    return found


def _interval(part: str, names: list[str]) -> Interval:
    stream, _, ends = part.partition(":")
    first_text, _, last_text = ends.partition("-")
    first = int(first_text, 16)
    last = int(last_text, 16) if last_text else HASH_KEYS - 1
    if int(stream) < 0 or not first <= last < HASH_KEYS:
        raise ValueError
    return Interval(names[int(stream)], first, last)


def read_fan_out(row: Row, streams: frozenset[str]) -> dict[str, FanOutUse]:
    """Return the attribute ``fan_out`` by stream ARN, without its invalid lines."""
    # Ignore invalid lines. The attribute is only shown to people, and a refresh() may
    # have changed the streams since it was written. Clients write at most a line for
    # each stream, so more lines are not read.
    names, found = sorted(streams), {}
    for line in str(row.get("fan_out", "")).split("\n", len(names))[: len(names)]:
        match = _FAN_OUT.fullmatch(line)
        if match is not None and int(match[1]) < len(names):
            found[names[int(match[1])]] = FanOutUse(match[2], match[3] or "")
    return found


_FAN_OUT = re.compile(r"([0-9]{1,9}):([\w.-]{1,128})(?: (.+))?", re.ASCII)


def read_position(row: Row) -> Position | None:
    """Return the stored position, or None if it is missing."""
    if "sequence_number" not in row:
        return None
    number = get(row, "sequence_number", str)
    if not is_sequence_number(number):
        raise corrupt(row, "sequence_number")
    if "sub_sequence_number" not in row:
        return Position(number)
    return Position(number, count(row, "sub_sequence_number", last=WHOLE_RECORD))


def read_deaths(row: Row) -> Deaths:
    """Return the counted deaths. Raises CorruptRowError for an invalid attribute."""
    if "deaths" not in row:
        return NO_DEATHS
    return Deaths(
        counted=count(row, "deaths"),
        at=count(row, "died_at") / 1000,
        tried=_read_named_position(row, TRIED),
        suspect=_read_named_position(row, "suspect"),
        poison=_read_named_position(row, "poison"),
    )


def _read_named_position(row: Row, name: str) -> Position | None:
    if name not in row:
        return None
    try:
        return Position.of_text(get(row, name, str))
    except ConfigurationError:
        raise corrupt(row, name) from None


def read_tip(row: Row) -> Tip | None:
    """Return the attribute ``tip``, or None if it is missing or invalid."""
    # Ignore an invalid tip. It only serves to prove that no record was lost, and isn't
    # needed for reading.
    timestamp, _, position = str(row.get("tip", "")).partition("Z ")
    try:
        at = datetime.fromisoformat(f"{timestamp}+00:00").timestamp()
        found = Tip(at, Position.of_text(position))
    except (ValueError, OverflowError, ConfigurationError):
        return None
    return found if at >= 0 else None


def read_start(row: Row) -> Start:
    """Return the attribute ``start``."""
    type_, _, timestamp = get(row, "start", str).partition(" ")
    seconds = read_seconds(row, "start", timestamp) if timestamp else None
    has_timestamp = {"TRIM_HORIZON": False, "LATEST": False, "AT_TIMESTAMP": True}
    if has_timestamp.get(type_) is not (seconds is not None):
        raise corrupt(row, "start")
    return Start(type=type_, timestamp=seconds)


def is_sequence_number(text: str) -> bool:
    """Return whether text is a sequence number. AWS allows up to 129 digits."""
    return text.isascii() and text.isdigit() and len(text) <= 129


def read_hash_key(row: Row, name: str, text: str) -> int:
    """Parse a hash key of 32 hex digits."""
    # Accept only the exact text that this library writes, since it is part of the row's
    # key.
    if not _HASH_KEY.fullmatch(text):
        raise corrupt(row, name)
    return int(text, 16)


_HASH_KEY = re.compile(r"[0-9a-f]{32}")
SHARD_ID = re.compile(r"[a-zA-Z0-9_.-]{1,128}")


def read_seconds(row: Row, name: str, text: str) -> float:
    """Parse a time in seconds since 1970."""
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
    """Return a number. Raise CorruptRowError if it isn't within the bounds."""
    number = get(row, name, int, default)
    if not first <= number <= last:
        raise corrupt(row, name)
    return number


def get(row: Row, name: str, type_: type[T], default: T | None = None) -> T:
    """Return an attribute. Raise CorruptRowError if it isn't of exactly this type."""
    value: Value | None = row.get(name, default)
    # Don't use isinstance(): a bool is also an int, and an UnsupportedValue is a str.
    plain = frozenset if type_ not in (str, int, bool) else type_
    if type(value) is not plain:
        raise corrupt(row, name)
    return value  # type: ignore[return-value]


def corrupt(row: Row, name: str) -> CorruptRowError:
    """Return the error that names a row and its invalid attribute."""
    problem = f"{_quote(row[name])} can't be read" if name in row else "is missing"
    return CorruptRowError(
        f"state store row pk={row.get('pk')!r} sk={row.get('sk')!r}: "
        f"attribute {name} {problem}; was it written by hand or by another version? "
        "Correct or delete the row"
    )


def _quote(value: Value) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."
