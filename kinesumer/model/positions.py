"""The values that everything else speaks of: shards, positions, records, starts."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from kinesumer.errors import ConfigurationError


class Position(NamedTuple):
    """A place in a shard: up to and including this record.

    ``sub_sequence_number`` counts within a KPL aggregate. ``None`` stands for the whole
    Kinesis record, and so comes after every part of it.
    """

    sequence_number: str
    sub_sequence_number: int | None = None

    @property
    def order(self) -> tuple[int, str, int]:
        """A key to compare positions of one shard by.

        Sequence numbers are decimal, up to 56 digits and without leading zeros.
        """
        sub = self.sub_sequence_number
        number = self.sequence_number
        return (len(number), number, WHOLE_RECORD if sub is None else sub)

    @property
    def text(self) -> str:
        """The position as text to store: ``SEQUENCE``, ``SEQUENCE:SUB`` in a part."""
        sub = self.sub_sequence_number
        return self.sequence_number if sub is None else f"{self.sequence_number}:{sub}"

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Return the position that ``text`` wrote. Raises ConfigurationError."""
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ConfigurationError(
                f"{text!r:.200} is no position: a sequence number, and within a KPL "
                "aggregate a colon and the record's place in it, such as 4962:0"
            )
        number, sub = found.groups()
        return cls(number, None if sub is None else int(sub))

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self.order < _order(other)

    def __le__(self, other: tuple[object, ...]) -> bool:
        return self.order <= _order(other)

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return self.order > _order(other)

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return self.order >= _order(other)


class Tip(NamedTuple):
    """Where a shard ended at a time: no record after ``position`` had arrived then."""

    at: float
    """Seconds since 1970, by Kinesis's clock."""
    position: Position


WHOLE_RECORD = 1 << 53
"""Stored as the sub-sequence number of a position that covers the whole record."""


_POSITION = re.compile(r"([0-9]{1,129})(?::([0-9]{1,15}))?")


def _order(other: tuple[object, ...]) -> tuple[int, str, int]:
    if not isinstance(other, Position):
        raise TypeError(f"a Position can't be compared with {other!r}")
    return other.order
