"""Records that expired unread: an error, or counted with failOnDataLoss=false."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesumer.errors import (
    DataLossError,
    ShardMissingError,
    TrimmedPositionError,
)
from kinesumer.model.positions import Position
from kinesumer.model.streams import Start
from kinesumer.spark.offsets.model import BEGINNING, After, At, End

if TYPE_CHECKING:
    from kinesumer.model.records import Record
    from kinesumer.ports import StreamSource
    from kinesumer.spark.offsets.model import ShardPosition

logger = logging.getLogger("kinesumer.spark")


class DataLoss:
    """Raises or counts losses of records."""

    def __init__(self, *, fail: bool) -> None:
        self.fail = fail
        self.count = 0
        self._reported: set[tuple[str, str, ShardPosition | None]] = set()

    def report(
        self, arn: str, shard_id: str, place: ShardPosition | None, reason: str
    ) -> None:
        """Raise DataLossError; if failOnDataLoss=false, log and count a loss once."""
        at = ""
        if isinstance(place, After):
            at = f" after {place.position.sequence_number}"
        message = (
            f"stream {arn}, {shard_id or 'all shards'}: records{at} that the query "
            f"hasn't read are lost: {reason}"
        )
        if self.fail:
            raise DataLossError(
                f"{message}; to go on with what is left, set the option "
                "failOnDataLoss=false; to start over, use a new checkpointLocation"
            )
        if (arn, shard_id, place) not in self._reported:
            self._reported.add((arn, shard_id, place))
            self.count += 1
            logger.warning("%s; going on without them", message)


def may_be_trimmed(seen: float, retention_seconds: float, now: float) -> bool:
    """Tell whether a record that arrived after a time may have expired."""
    return seen + retention_seconds < now


def unproven(seen: float) -> str:
    """Return the reason why records after an old position may be lost."""
    if seen:
        return "retention has passed them, or may have"
    return (
        "the position has expired, and it is not known whether records came after it "
        'and expired as well; if none came, give the position as {"after": '
        'SEQUENCE_NUMBER, "seen": TIME} with a time until which none had come, or '
        "begin this shard at AT_TIMESTAMP or TRIM_HORIZON"
    )


def seen_at(place: ShardPosition) -> float | None:
    """Return a time before which nothing after a position arrived; None if unknown."""
    match place:
        case After(seen=seen) | At(seen=seen):
            return seen
        case Start(timestamp=timestamp):
            return timestamp
    return None


async def holds_all_after(
    source: StreamSource, shard_id: str, place: ShardPosition
) -> bool:
    """Tell whether a shard surely still holds all records after an old position.

    It does if its oldest record is not after the position, or arrived before the
    position's time, or is the record that the position names.
    """
    if place == BEGINNING or isinstance(place, End):
        return False
    try:
        iterator = await source.get_iterator(shard_id, Start.TRIM_HORIZON)
        for _ in range(PAGES):
            page = await source.get_records(iterator, 1)
            if page.records:
                return _reaches_back(page.records[0], place)
            if page.next_iterator is None or not page.millis_behind:
                return False
            iterator = page.next_iterator
    except (ShardMissingError, TrimmedPositionError):
        return False
    return False


def _reaches_back(oldest: Record, place: ShardPosition) -> bool:
    number, arrived = oldest.sequence_number, oldest.approximate_arrival_timestamp
    match place:
        case After(position=position):
            return position >= Position(number, 0)
        case At(sequence_number=at):
            return Position(at) >= Position(number)
        case Start(timestamp=float(since)):
            return arrived is not None and arrived < since
    return False


PAGES = 10
"""The maximum number of empty pages before the first record."""
