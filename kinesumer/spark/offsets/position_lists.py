"""Read the positions of many shards from the lists in offsets of version 2.

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
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.spark.offsets.model import After, At, End

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kinesumer.spark.offsets.model import ShardPosition

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_MAX_NUMBER = 10**129  # AWS's API allows sequence numbers of 129 digits
_MAX_ID_LETTERS = 128  # and shard ids of 128 letters
_MAX_MILLIS = int(YEAR_10000) * 1000
# The number of bits in the second column of a table.
_LOW_BITS = 44
# The lowest 36 bits of AWS's sequence numbers hold a version and the shard's number.
_SHARD_BITS = 36
_SECONDS_BITS = 36  # the next bits: roughly the record's arrival, in seconds
_SHARD_ID = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII | re.DOTALL)
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
    lists: Mapping[str, list[Any]], from_full: Callable[[Any], ShardPosition]
) -> dict[str, ShardPosition]:
    """Return the positions that are written in lists.

    Raises ValueError, TypeError or KeyError for invalid lists.
    """
    positions: dict[str, ShardPosition] = {}
    before = _Before()
    for first_id in sorted(lists):
        if len(first_id) > _MAX_ID_LETTERS:
            # Each position of the list would repeat it.
            raise ValueError(f"{first_id:.40}… is longer than a shard id")
        split = _split(first_id)
        prefix, number, width = split or (first_id, 0, 0)
        for item in _words(lists[first_id]):
            if isinstance(item, str) and (gap := _GAP.fullmatch(item)):
                number += int(gap[1])
                continue
            shard_id = f"{prefix}{number:0{width}}" if split else first_id
            if shard_id in positions or number >= 10**18:
                raise ValueError(f"{shard_id:.40} is repeated or out of range")
            if isinstance(item, str):
                positions[shard_id] = before.read(item, number)
            elif isinstance(item, _Row):
                positions[shard_id] = before.read_row(item, number)
            else:
                positions[shard_id] = from_full(item)
                before.note(positions[shard_id], number)
            number += 1
    return positions


class _Row(NamedTuple):
    """A row of a table. It stands for one position."""

    mark: str
    numbers: tuple[int, int, int]


def _words(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, str):
            for word in item.split(" "):
                table = _TABLE.fullmatch(word)
                yield from [word] if table is None else _rows(table)
        else:
            yield item


def _rows(table: re.Match[str]) -> Iterator[_Row]:
    """Yield the rows of a table. Raises ValueError if the last row is incomplete."""
    mark, cells = table[1], table[5]
    ends = list(accumulate(int(table[column]) for column in (2, 3, 4)))
    if not ends[-1] or len(cells) % ends[-1]:
        raise ValueError(f"the table {table[0][:40]!r} is cut off")
    for start in range(0, len(cells), ends[-1]):
        a, b, c = (start + end for end in ends)
        numbers = _value(cells[start:a]), _value(cells[a:b]), _value(cells[b:c])
        yield _Row(mark, numbers)


def _split(shard_id: str) -> tuple[str, int, int] | None:
    """Split an id such as shardId-007 into the text, the number 7, and its width 3.

    Return None if the id doesn't end with a number.
    """
    match = _SHARD_ID.fullmatch(shard_id)
    return match and (match[1], int(match[2]), len(match[2]))


class _Before:
    """The state that differences refer to: the values of the previous positions."""

    def __init__(self) -> None:
        self._place: ShardPosition | None = None
        self._number: int | None = None
        self._shard = 0
        """The number of the shard in which ``_number`` is a sequence number."""
        self._millis: int | None = None

    def note(self, position: ShardPosition, shard: int) -> None:
        """Store a position's values, to which the next differences refer."""
        self._place = position
        number = _sequence_number(position)
        if number is not None:
            self._number, self._shard = number, shard
        millis = _millis(position)
        if millis is not None:
            self._millis = millis

    def read_row(self, row: _Row, shard: int) -> ShardPosition:
        """Return the position that a table row stands for. Raises ValueError."""
        high, low, twice = row.numbers
        if self._number is None or self._millis is None:
            raise ValueError("a table of positions has no position before it")
        shards = _of_shard(shard) ^ _of_shard(self._shard)
        rest = high << _LOW_BITS | low
        number = self._number ^ shards ^ rest << _SHARD_BITS
        late = -(twice + 1) // 2 if twice % 2 else twice // 2
        millis = late + _late(self._number, self._millis) - _late(number, 0)
        if number >= _MAX_NUMBER or not 0 <= millis < _MAX_MILLIS:
            raise ValueError("a row of a table of positions is out of range")
        position: ShardPosition = After(Position(str(number)), millis / 1000)
        if row.mark:
            position = At(str(number), millis / 1000)
        self.note(position, shard)
        return position

    def read(self, text: str, shard: int) -> ShardPosition:
        """Return the position that a word stands for. Raises ValueError."""
        position = self._place if text == "=" else self._sum(text, shard)
        if position is None:
            raise ValueError(
                f"the position {text[:40]!r} is malformed or lacks a previous one"
            )
        self.note(position, shard)
        return position

    def _sum(self, text: str, shard: int) -> ShardPosition | None:
        by_time, by_record = _TIME.fullmatch(text), _RECORD.fullmatch(text)
        if by_time is not None:
            seconds = self._seconds(by_time[2])
            if by_time[1] == "!":
                return End(seconds)
            return Start(type="AT_TIMESTAMP", timestamp=seconds)
        if by_record is None or self._number is None:
            return None
        at, digits, mark, time, sub = by_record.groups()
        number = self._number ^ _value(digits)
        if mark == ".":
            shards = _of_shard(shard) ^ _of_shard(self._shard)
            number = self._number ^ shards ^ (_value(digits) << _SHARD_BITS)
        if number >= _MAX_NUMBER:
            raise ValueError(f"the sequence number of {text[:40]!r} is too large")
        if at:
            return None if sub else At(str(number), self._seconds(time))
        within = None if sub is None else int(sub)
        if within is not None and within >= WHOLE_RECORD:
            raise ValueError(f"the sub-sequence number of {text[:40]!r} is too large")
        return After(Position(str(number), within), self._seconds(time))

    def _seconds(self, text: str) -> float:
        difference = _value(text.removeprefix("-"))
        millis = (self._millis or 0) + (-difference if text[:1] == "-" else difference)
        if self._millis is None or not 0 <= millis < _MAX_MILLIS:
            raise ValueError(f"the time {text[:40]!r} is out of range")
        return millis / 1000


def _sequence_number(position: ShardPosition) -> int | None:
    """Return a position's sequence number, or None if it has leading zeros."""
    match position:
        case After(position=Position(sequence_number=text)) | At(sequence_number=text):
            number = int(text)
        case _:
            return None
    return number if str(number) == text else None


def _millis(position: ShardPosition) -> int | None:
    """Return a position's time in milliseconds, or None if absent or fractional."""
    seconds = position.timestamp if isinstance(position, Start) else position.seen
    if seconds is None:
        return None
    millis = round(seconds * 1000)
    return millis if millis / 1000 == seconds else None


def _late(number: int, millis: int) -> int:
    """Return a time minus the time in one of AWS's sequence numbers, in ms."""
    return millis - 1000 * (number >> _SHARD_BITS & (1 << _SECONDS_BITS) - 1)


def _of_shard(shard: int) -> int:
    """Return the bits that a shard's number sets in AWS's sequence numbers."""
    return (shard % 16) << 144 | (shard % (1 << 32)) << 4


def _value(text: str) -> int:
    value = 0
    for digit in text:
        value = value * 64 + _VALUES[digit]
    return value
