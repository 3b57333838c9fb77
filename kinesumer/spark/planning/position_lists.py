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
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kinesumer.model.positions import WHOLE_RECORD, Position
from kinesumer.model.streams import YEAR_10000, Start
from kinesumer.spark.planning.offsets import After, At, End

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kinesumer.spark.planning.offsets import Place

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_MOST_NUMBER = 10**129
_MOST_MILLIS = int(YEAR_10000) * 1000
_SHARD_BITS = 36
"""The lowest bits of a sequence number by AWS: a version and the shard's number."""
_SHARD_ID = re.compile(r"(.*?)([0-9]{1,18})", re.ASCII | re.DOTALL)
_RECORD = re.compile(
    r"(@?)([0-9A-Za-z+/]{0,75})([:.])(-?[0-9A-Za-z+/]{0,9})(?::([0-9]{1,19}))?",
    re.ASCII,
)
_GAP = re.compile(r"_([0-9]{1,18})", re.ASCII)
_TIME = re.compile(r"([!>])(-?[0-9A-Za-z+/]{0,9})", re.ASCII)


def pack(
    places: Mapping[str, Place], in_full: Callable[[Place], dict[str, Any]]
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
        text = before.write(place, split[1] if split else 0)
        items.append(in_full(place) if text is None else text)
        previous = split
    return {shard_id: _joined(items) for shard_id, items in lists.items()}


def unpack(
    lists: Mapping[str, list[Any]], from_full: Callable[[Any], Place]
) -> dict[str, Place]:
    """Return the places that lists hold. Raises ValueError, TypeError or KeyError."""
    places: dict[str, Place] = {}
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
            else:
                places[shard_id] = from_full(item)
                before.note(places[shard_id], number)
            number += 1
    return places


def _joined(items: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for is_text, grouped in groupby(items, lambda item: isinstance(item, str)):
        group = list(grouped)
        joined += [" ".join(group)] if is_text else group
    return joined


def _words(items: list[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, str):
            yield from item.split(" ")
        else:
            yield item


def _split(shard_id: str) -> tuple[str, int, int] | None:
    """Return an id's text, number and the number's width. None if there is none."""
    found = _SHARD_ID.fullmatch(shard_id)
    return found and (found[1], int(found[2]), len(found[2]))


class _Before:
    """The place before, from which the next one is a difference."""

    def __init__(self) -> None:
        self._place: Place | None = None
        self._number: int | None = None
        self._shard = 0
        """The number of the shard that the sequence number is of."""
        self._millis: int | None = None

    def note(self, place: Place, shard: int) -> None:
        """Let the next place be a difference from this one."""
        self._place = place
        number = _sequence_number(place)
        if number is not None:
            self._number, self._shard = number, shard
        millis = _millis(place)
        if millis is not None:
            self._millis = millis

    def write(self, place: Place, shard: int) -> str | None:
        """Return a place as a difference; None if it must be written in full."""
        text = "=" if _same(place, self._place) else self._difference(place, shard)
        self.note(place, shard)
        return text

    def _difference(self, place: Place, shard: int) -> str | None:
        millis = _millis(place)
        if millis is None or self._millis is None:
            return None
        time = _signed(millis - self._millis)
        if isinstance(place, End):
            return f"!{time}"
        if isinstance(place, Start):
            return f">{time}"
        number = _sequence_number(place)
        if number is None or self._number is None:
            return None
        text = f"{_written(number ^ self._number)}:{time}"
        rest = number ^ self._number ^ _of_shard(shard) ^ _of_shard(self._shard)
        if not rest % (1 << _SHARD_BITS):
            shorter = f"{_written(rest >> _SHARD_BITS)}.{time}"
            text = min(text, shorter, key=len)
        if isinstance(place, At):
            return f"@{text}"
        sub = place.position.sub_sequence_number
        return text if sub is None else f"{text}:{sub}"

    def read(self, text: str, shard: int) -> Place:
        """Return the place that a difference means. Raises ValueError."""
        place = self._place if text == "=" else self._sum(text, shard)
        if place is None:
            raise ValueError(f"the place {text[:40]!r} follows none, or is malformed")
        self.note(place, shard)
        return place

    def _sum(self, text: str, shard: int) -> Place | None:
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
        if number >= _MOST_NUMBER:
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
        if self._millis is None or not 0 <= millis < _MOST_MILLIS:
            raise ValueError(f"the time {text[:40]!r} is out of range")
        return millis / 1000


def _same(place: Place, other: Place | None) -> bool:
    if isinstance(place, End) and isinstance(other, End):
        return place.seen == other.seen
    return place == other


def _sequence_number(place: Place) -> int | None:
    """Return a place's sequence number, unless it would be written another way."""
    if isinstance(place, After):
        text = place.position.sequence_number
    elif isinstance(place, At):
        text = place.sequence_number
    else:
        return None
    number = int(text)
    return number if str(number) == text else None


def _millis(place: Place) -> int | None:
    """Return a place's time, unless it has none or not a whole number."""
    if isinstance(place, Start):
        seconds = place.timestamp
    else:
        seconds = place.seen
    if seconds is None:
        return None
    millis = round(seconds * 1000)
    return millis if millis / 1000 == seconds else None


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
