"""The places of many shards as short lists, for offsets of large streams.

``{SHARD_ID: [ITEM, …]}``: the first place is of that shard, each other one of the shard
whose number follows. An item is an object, which is a place in full, or text: words
with a space between them. As a word:

- ``=``: the same place as the one before
- ``NUMBER:TIME``: after a record, and ``:SUB`` in an aggregate
- ``@NUMBER:TIME``: at a record
- ``!TIME``: the end; ``>TIME``: a start by time
- ``_N``: no place; the next N shards have none

TIME is the difference in milliseconds from the place before that has a time. NUMBER is
the exclusive or with the sequence number before. With ``.`` in place of the first ``:``
the number of the shard is taken out of both, and then the lowest 36 bits, which are 0.
Both are written with the digits 0-9, A-Z, a-z, + and /.

Words with ``.`` that follow each other may be a table instead: ``#A,B,C:``, and for
each place A, B and C digits without anything between. ``@#`` is a table of places at a
record. The B digits are the lowest 44 bits of NUMBER, the A digits are the others. The
C digits are the difference of the milliseconds that TIME is later than the second in
AWS's sequence number: doubled, or if it is negative, doubled without its sign, less 1.
"""

from __future__ import annotations

import re
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.spark.offsets.model import After, At, End

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kinesumer.spark.offsets.model import ShardPosition

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_MAX_NUMBER = 10**129
_MAX_MILLIS = int(YEAR_10000) * 1000
_LOW_BITS = 44
"""A table has these bits of numbers, mostly a time, in a column of their own."""
_SHARD_BITS = 36
"""The lowest bits of a sequence number by AWS: a version and the shard's number."""
_SECONDS_BITS = 36
"""The bits above: about the second in which a record arrived."""
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


def pack(
    places: Mapping[str, ShardPosition],
    in_full: Callable[[ShardPosition], dict[str, Any]],
) -> dict[str, list[Any]]:
    """Return places, sorted by shard id, as lists."""
    lists: dict[str, list[Any]] = {}
    before = _Before()
    previous: tuple[str, int, int] | None = None
    items: list[Any] = []
    for shard_id, place in places.items():
        split = _split(shard_id)
        gap = -1
        if split is not None and previous is not None and split[::2] == previous[::2]:
            gap = split[1] - previous[1] - 1
        if gap < 0:
            items = lists[shard_id] = []
        elif gap:
            items.append(f"_{gap}")
        word = before.write(place, split[1] if split else 0)
        items.append(in_full(place) if word is None else word)
        previous = split
    return {shard_id: _joined(items) for shard_id, items in lists.items()}


def unpack(
    lists: Mapping[str, list[Any]], from_full: Callable[[Any], ShardPosition]
) -> dict[str, ShardPosition]:
    """Return the places that lists hold. Raises ValueError, TypeError or KeyError."""
    places: dict[str, ShardPosition] = {}
    before = _Before()
    for first_id in sorted(lists):
        split = _split(first_id)
        prefix, number, width = split or (first_id, 0, 0)
        for item in _words(lists[first_id]):
            if isinstance(item, str) and (gap := _GAP.fullmatch(item)):
                number += int(gap[1])
                continue
            shard_id = f"{prefix}{number:0{width}}" if split else first_id
            if shard_id in places or number >= 10**18:
                raise ValueError(f"a list of places goes wrong at {shard_id:.40}")
            if isinstance(item, str):
                places[shard_id] = before.read(item, number)
            elif isinstance(item, _Row):
                places[shard_id] = before.read_row(item, number)
            else:
                places[shard_id] = from_full(item)
                before.note(places[shard_id], number)
            number += 1
    return places


class _Row(NamedTuple):
    """A row of a table: one place."""

    mark: str
    numbers: tuple[int, int, int]


class _Word(NamedTuple):
    """A place as a difference, and as a row of a table if it may be one."""

    text: str
    row: _Row | None = None


def _joined(items: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for is_text, grouped in groupby(items, lambda item: isinstance(item, str | _Word)):
        group = list(grouped)
        joined += [" ".join(_short(group))] if is_text else group
    return joined


def _short(items: list[str | _Word]) -> Iterator[str]:
    """Yield items as text, and rows that follow each other as a table if shorter."""
    words = [item if isinstance(item, _Word) else _Word(item) for item in items]
    for mark, grouped in groupby(words, lambda word: word.row and word.row.mark):
        group = list(grouped)
        text = " ".join(word.text for word in group)
        rows = [word.row for word in group if word.row is not None]
        yield text if mark is None else min(text, _table(rows), key=len)


def _table(rows: list[_Row]) -> str:
    texts = [[_written(number) for number in row.numbers] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    widths[-1] = max(1, widths[-1])
    cells = (
        text.rjust(width, "0")
        for row in texts
        for text, width in zip(row, widths, strict=True)
    )
    return f"{rows[0].mark}#{','.join(map(str, widths))}:{''.join(cells)}"


def _words(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, str):
            for word in item.split(" "):
                table = _TABLE.fullmatch(word)
                yield from [word] if table is None else _rows(table)
        else:
            yield item


def _rows(table: re.Match[str]) -> Iterator[_Row]:
    """Yield the rows of a table. Raises ValueError."""
    mark, cells = table[1], table[5]
    ends = list(accumulate(int(table[column]) for column in (2, 3, 4)))
    if not ends[-1] or len(cells) % ends[-1]:
        raise ValueError(f"the table {table[0][:40]!r} is cut off")
    for start in range(0, len(cells), ends[-1]):
        a, b, c = (start + end for end in ends)
        numbers = _value(cells[start:a]), _value(cells[a:b]), _value(cells[b:c])
        yield _Row(mark, numbers)


def _split(shard_id: str) -> tuple[str, int, int] | None:
    """Return an id's text, number and the number's width. None if there is none."""
    found = _SHARD_ID.fullmatch(shard_id)
    return found and (found[1], int(found[2]), len(found[2]))


class _Before:
    """The place before, from which the next one is a difference."""

    def __init__(self) -> None:
        self._place: ShardPosition | None = None
        self._number: int | None = None
        self._shard = 0
        """The number of the shard that the sequence number is of."""
        self._millis: int | None = None

    def note(self, place: ShardPosition, shard: int) -> None:
        """Let the next place be a difference from this one."""
        self._place = place
        number = _sequence_number(place)
        if number is not None:
            self._number, self._shard = number, shard
        millis = _millis(place)
        if millis is not None:
            self._millis = millis

    def write(self, place: ShardPosition, shard: int) -> _Word | None:
        """Return a place as a difference; None if it must be written in full."""
        same = _same(place, self._place)
        word = _Word("=") if same else self._difference(place, shard)
        self.note(place, shard)
        return word

    def _difference(self, place: ShardPosition, shard: int) -> _Word | None:
        millis = _millis(place)
        if millis is None or self._millis is None:
            return None
        time = _signed(millis - self._millis)
        if isinstance(place, End):
            return _Word(f"!{time}")
        if isinstance(place, Start):
            return _Word(f">{time}")
        number = _sequence_number(place)
        if number is None or self._number is None:
            return None
        text, row = f"{_written(number ^ self._number)}:{time}", None
        rest = number ^ self._number ^ _of_shard(shard) ^ _of_shard(self._shard)
        if not rest % (1 << _SHARD_BITS):
            shorter = f"{_written(rest >> _SHARD_BITS)}.{time}"
            text = min(text, shorter, key=len)
            high, low = divmod(rest >> _SHARD_BITS, 1 << _LOW_BITS)
            late = _late(number, millis) - _late(self._number, self._millis)
            mark = "@" if isinstance(place, At) else ""
            row = _Row(mark, (high, low, 2 * late if late >= 0 else -2 * late - 1))
        if isinstance(place, At):
            return _Word(f"@{text}", row)
        sub = place.position.sub_sequence_number
        return _Word(text, row) if sub is None else _Word(f"{text}:{sub}")

    def read_row(self, row: _Row, shard: int) -> ShardPosition:
        """Return the place that a row of a table means. Raises ValueError."""
        high, low, twice = row.numbers
        if self._number is None or self._millis is None:
            raise ValueError("a table of places follows none")
        shards = _of_shard(shard) ^ _of_shard(self._shard)
        rest = high << _LOW_BITS | low
        number = self._number ^ shards ^ rest << _SHARD_BITS
        late = -(twice + 1) // 2 if twice % 2 else twice // 2
        millis = late + _late(self._number, self._millis) - _late(number, 0)
        if number >= _MAX_NUMBER or not 0 <= millis < _MAX_MILLIS:
            raise ValueError("a row of a table of places is out of range")
        place: ShardPosition = After(Position(str(number)), millis / 1000)
        if row.mark:
            place = At(str(number), millis / 1000)
        self.note(place, shard)
        return place

    def read(self, text: str, shard: int) -> ShardPosition:
        """Return the place that a difference means. Raises ValueError."""
        place = self._place if text == "=" else self._sum(text, shard)
        if place is None:
            raise ValueError(f"the place {text[:40]!r} follows none, or is malformed")
        self.note(place, shard)
        return place

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


def _same(place: ShardPosition, other: ShardPosition | None) -> bool:
    if isinstance(place, End) and isinstance(other, End):
        return place.seen == other.seen
    return place == other


def _sequence_number(place: ShardPosition) -> int | None:
    """Return a place's sequence number, unless it would be written another way."""
    if isinstance(place, After):
        text = place.position.sequence_number
    elif isinstance(place, At):
        text = place.sequence_number
    else:
        return None
    number = int(text)
    return number if str(number) == text else None


def _millis(place: ShardPosition) -> int | None:
    """Return a place's time, unless it has none or not a whole number."""
    if isinstance(place, Start):
        seconds = place.timestamp
    else:
        seconds = place.seen
    if seconds is None:
        return None
    millis = round(seconds * 1000)
    return millis if millis / 1000 == seconds else None


def _late(number: int, millis: int) -> int:
    """Return how much later a time is than the second in AWS's sequence number."""
    return millis - 1000 * (number >> _SHARD_BITS & (1 << _SECONDS_BITS) - 1)


def _of_shard(shard: int) -> int:
    """Return the bits of AWS's sequence numbers that tell the shard."""
    return (shard % 16) << 144 | (shard % (1 << 32)) << 4


def _signed(value: int) -> str:
    return f"-{_written(-value)}" if value < 0 else _written(value)


def _written(value: int) -> str:
    digits = []
    while value:
        value, digit = divmod(value, 64)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))


def _value(text: str) -> int:
    value = 0
    for digit in text:
        value = value * 64 + _VALUES[digit]
    return value
