"""What stands in a shard at a position, asked of Kinesis."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import (
    PositionRefusedError,
    ShardMissingError,
    TrimmedPositionError,
)
from kinesumer.model import HASH_KEYS, Fence, Position, ShardKey, Source, Start
from kinesumer.wire.aggregation import open_records

if TYPE_CHECKING:
    from kinesumer.model import Record
    from kinesumer.operations.asking import Asking
    from kinesumer.ports import StreamSource

MOST_PAGES = 50
"""Pages may be empty where there are records further on."""


class Found(Enum):
    """What became of a position."""

    THERE = "there"
    EXPIRED = "expired"
    """Retention has passed it."""
    GONE = "gone"
    """Retention has passed the whole shard."""
    FOREIGN = "foreign"
    """Kinesis says that it was never in this shard."""


class Peek(NamedTuple):
    """An answer about one sequence number."""

    found: Found
    parts: int | None = None
    """How many user records the aggregate at it holds; None: it is none."""
    first: str | None = None
    """The first sequence number that isn't before it; None: nothing follows."""


async def peek(
    asking: Asking, source: StreamSource, key: ShardKey, number: str
) -> Peek:
    """Look at the record with a sequence number. Raises KinesumerError."""
    try:
        record = await _first(asking, source, key, Position(number, 0))
    except ShardMissingError:
        return Peek(Found.GONE)
    except TrimmedPositionError:
        return Peek(Found.EXPIRED)
    except PositionRefusedError:
        return Peek(Found.FOREIGN)
    if record is None:
        return Peek(Found.THERE)
    first = record.sequence_number
    return Peek(Found.THERE, _parts(record) if first == number else None, first)


async def oldest(asking: Asking, source: StreamSource, key: ShardKey) -> str | None:
    """Return the first sequence number that a shard has left. Raises KinesumerError."""
    record = await _first(asking, source, key, Start.TRIM_HORIZON)
    return record.sequence_number if record else None


async def _first(
    asking: Asking, source: StreamSource, key: ShardKey, place: Position | Start
) -> Record | None:
    page = await asking.read(source, key, place, 1)
    for _ in range(MOST_PAGES):
        if page.records:
            return page.records[0]
        if page.next_iterator is None or not page.millis_behind:
            return None
        page = await asking.read_on(source, key, page.next_iterator, 1)
    return None


def _parts(record: Record) -> int | None:
    fence = Fence(ShardKey("", ""), 0)
    opened = open_records([record], Source(fence, 0, HASH_KEYS - 1)).records
    if opened and opened[0].sub_sequence_number is None:
        return None
    return len(opened)
