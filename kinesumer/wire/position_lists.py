"""Expand the lists of positions in offsets of version 2.

A later version does not write these lists.

In ``{SHARD_ID: [ITEM, …]}``, the first position is that of the shard SHARD_ID. Each
further position is that of the shard with the next number. An item is either an object
with a full position, or a text of words that are separated by spaces. The words are:

- ``=``: the same position as the previous one
- ``NUMBER:TIME``: an After; in an aggregate ``NUMBER:TIME:SUB``
- ``@NUMBER:TIME``: an At
- ``!TIME``: an End that has a time
- ``>TIME``: a Start of the type AT_TIMESTAMP
- ``_N``: no position: the next N shards are omitted

NUMBER and TIME are differences from the previous position that has such a value. TIME
is a difference in milliseconds. NUMBER is the exclusive or of both sequence numbers.
Both are written in base 64, with the digits 0-9, A-Z, a-z, + and /.

AWS's sequence numbers contain the shard's number, and are otherwise similar. A word
with ``.`` instead of the first ``:`` has a shorter NUMBER: the bits that come from the
two shard numbers are cleared, and then the lowest 36 bits, which are 0, are dropped.

Consecutive words with ``.`` may be written as a table, one row for each position. The
table is ``#A,B,C:`` (for At positions ``@#A,B,C:``), followed by all rows without
separators. A row has three columns, with A, B and C digits:

- NUMBER without its lowest 44 bits
- the lowest 44 bits of NUMBER
- 2 * D, or -2 * D - 1 if D is negative. D is the difference of the delays of this and
  the previous position. A delay is the position's time minus the time that AWS puts
  into the sequence number, in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_LOW_BITS = 44  # of the second column of a table
# The lowest bits of AWS's sequence numbers hold a version and the shard's number. The
# next bits, as many, hold roughly the record's arrival in seconds.
_SHARD_BITS = 36
_SHARD_ID = re.compile(r"(.{0,127}?)([0-9]{1,18})", re.ASCII | re.DOTALL)
_RECORD = re.compile(
    r"(@?)([0-9A-Za-z+/]{0,75})([:.])(-?[0-9A-Za-z+/]{0,9})(?::([0-9]{1,19}))?",
    re.ASCII,
)
_TABLE = re.compile(
    r"(@?)#([0-9]{1,2}),([0-9]{1,2}),([0-9]{1,2}):([0-9A-Za-z+/]*)", re.ASCII
)
_GAP = re.compile(r"_([0-9]{1,18})", re.ASCII)
_TIME = re.compile(r"([!>])(-?[0-9A-Za-z+/]{0,9})", re.ASCII)


def unpack(
    lists: Mapping[str, list[Any]], check: Callable[[Any], object]
) -> dict[str, Any]:
    """Return the positions in lists, each as an object with a full position.

    The caller must check them. ``check`` is called with those that are written in full.
    Raises ValueError, TypeError or KeyError for invalid lists.
    """
    positions: dict[str, Any] = {}
    reader = _Reader(check)
    for first_id in sorted(lists):
        if len(first_id) > 128:  # AWS's maximum; each position would repeat it
            raise ValueError(f"{first_id:.40}… is longer than a shard id")
        split = _SHARD_ID.fullmatch(first_id)
        number, width = (int(split[2]), len(split[2])) if split else (0, 0)
        for item in _words(lists[first_id]):
            if isinstance(item, str) and (gap := _GAP.fullmatch(item)):
                number += int(gap[1])
                continue
            shard_id = f"{split[1]}{number:0{width}}" if split else first_id
            if shard_id in positions or number >= 10**18:
                raise ValueError(f"{shard_id:.40} is repeated or out of range")
            positions[shard_id] = reader.read(item, number)
            number += 1
    return positions


class _Row(NamedTuple):
    """A row of a table, which stands for one position."""

    key: str
    high: int
    low: int
    twice: int


def _words(items: list[Any]) -> Iterator[Any]:
    for item in items:
        for word in item.split(" ") if isinstance(item, str) else [item]:
            table = _TABLE.fullmatch(word) if isinstance(word, str) else None
            yield from [word] if table is None else _rows(table)


def _rows(table: re.Match[str]) -> Iterator[_Row]:
    """Yield the rows of a table. Raises ValueError if the last row is incomplete."""
    key, cells = "at" if table[1] else "after", table[5]
    ends = list(accumulate(int(table[column]) for column in (2, 3, 4)))
    if not ends[-1] or len(cells) % ends[-1]:
        raise ValueError(f"the table {table[0][:40]!r} is cut off")
    for start in range(0, len(cells), ends[-1]):
        a, b, c = (start + end for end in ends)
        yield _Row(key, *map(_value, (cells[start:a], cells[a:b], cells[b:c])))


class _Reader:
    """Reads positions, with the values of the previous ones to which they refer."""

    def __init__(self, check: Callable[[Any], object]) -> None:
        self._check = check
        self._position: Any = None
        self._number = self._millis = -1  # -1: there is none yet
        self._shard = 0  # the number of the shard of ``_number``

    def read(self, item: Any, shard: int) -> Any:
        """Return the position that an item stands for. Raises ValueError."""
        if isinstance(item, _Row):
            self._position = self._row(item, shard)
        elif not isinstance(item, str):
            self._check(item)
            self._position = item
        elif item != "=":
            self._position = self._difference(item, shard)
        if self._position is None:
            raise ValueError(f"the position {item!r:.40} lacks a previous one")
        number = self._position.get("after", self._position.get("at", "-"))
        if number == "0" or number[:1] not in "-0":
            self._number, self._shard = int(number), shard
        seconds = self._position.get("seen", self._position.get("time", -1.0))
        if seconds >= 0 and round(seconds * 1000) / 1000 == seconds:
            self._millis = round(seconds * 1000)
        return self._position

    def _row(self, row: _Row, shard: int) -> Any:
        number = self._moved(row.high << _LOW_BITS | row.low, shard)
        late = -(row.twice + 1) // 2 if row.twice % 2 else row.twice // 2
        passed = _taken_at(number) - _taken_at(self._number)
        return {row.key: str(number), "seen": self._time(late + 1000 * passed)}

    def _difference(self, text: str, shard: int) -> Any:
        if time := _TIME.fullmatch(text):
            seconds = self._time(_signed(time[2]))
            if time[1] == "!":
                return {"end": True, "seen": seconds}
            return {"start": "AT_TIMESTAMP", "time": seconds}
        record = _RECORD.fullmatch(text)
        if record is None or (record[1] and record[5]):
            raise ValueError(f"the position {text[:40]!r} is malformed")
        digits = _value(record[2])
        number = self._moved(digits, shard) if record[3] == "." else self._xor(digits)
        seen = self._time(_signed(record[4]))
        if record[5]:
            return {"after": str(number), "seen": seen, "sub": int(record[5])}
        return {"at" if record[1] else "after": str(number), "seen": seen}

    def _moved(self, rest: int, shard: int) -> int:
        """Return a sequence number in a shard, given without the shard's bits."""
        shards = _of_shard(shard) ^ _of_shard(self._shard)
        return self._xor(shards ^ rest << _SHARD_BITS)

    def _xor(self, bits: int) -> int:
        if self._number < 0:
            raise ValueError("a sequence number lacks a previous one")
        return self._number ^ bits

    def _time(self, difference: int) -> float:
        if self._millis < 0:
            raise ValueError("a time lacks a previous one")
        return (self._millis + difference) / 1000


def _taken_at(number: int) -> int:
    """Return the time in one of AWS's sequence numbers, in seconds."""
    return number >> _SHARD_BITS & (1 << _SHARD_BITS) - 1


def _of_shard(shard: int) -> int:
    """Return the bits that a shard's number sets in AWS's sequence numbers."""
    return (shard % 16) << 144 | (shard % (1 << 32)) << 4


def _value(text: str) -> int:
    value = 0
    for digit in text:
        value = value * 64 + _VALUES[digit]
    return value


def _signed(text: str) -> int:
    value = _value(text.removeprefix("-"))
    return -value if text[:1] == "-" else value
