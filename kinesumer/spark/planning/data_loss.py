"""Finds and reports data loss: records that expired before the query read them."""

from __future__ import annotations

from kinesumer.errors import DataLossError, ShardMissingError, TrimmedPositionError
from kinesumer.model.positions import BEGINNING, After, At, End, Position, ShardPosition
from kinesumer.model.records import Record
from kinesumer.model.streams import ShardKey, Start
from kinesumer.ports import StreamSource
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.shard_pages import ShardPages


class DataLoss:
    """Reports data loss: raises an error, or counts losses if failOnDataLoss=false."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._reported: set[tuple[str, str, ShardPosition | None]] = set()

    @property
    def count(self) -> int:
        """The number of losses so far."""
        return len(self._reported)

    def report(
        self, arn: str, shard_id: str, position: ShardPosition | None, reason: str
    ) -> None:
        """Raise DataLossError. If failOnDataLoss=false, log and count the loss instead.

        A loss that is reported again isn't counted again.
        """
        at = ""
        if isinstance(position, After):
            at = f" after {position.position.sequence_number}"
        message = (
            f"stream {arn}, {shard_id or 'all shards'}: records{at} that the query "
            f"hasn't read are lost: {reason}"
        )
        if self._fail:
            raise DataLossError(
                f"{message}; to go on with what is left, set the option "
                "failOnDataLoss=false; to start over, use a new checkpointLocation"
            )
        loss = (arn, shard_id, position)
        if loss not in self._reported:
            self._reported.add(loss)
            logger.warning("%s; going on without them", message)


def unproven(seen: float) -> str:
    """Return the text of an error that explains why records may have been lost."""
    if seen:
        return "retention has passed them, or may have"
    return (
        "the position has expired, and it is not known whether records came after it "
        'and expired as well; if none came, give the position as {"after": '
        'SEQUENCE_NUMBER, "seen": TIME} with a time until which none had come, or '
        "begin this shard at AT_TIMESTAMP or TRIM_HORIZON"
    )


async def holds_all_after(
    source: StreamSource, key: ShardKey, position: ShardPosition
) -> bool:
    """Return whether a shard certainly still holds all records after an old position.

    This is certain if the oldest record in the shard is not after the position. For a
    Start with a time, that record must have arrived before the time.
    """
    if position == BEGINNING or isinstance(position, End):
        return False
    try:
        page = await ShardPages(source, key, Start.TRIM_HORIZON).first()
    except (ShardMissingError, TrimmedPositionError):
        return False
    return bool(page.records) and _reaches_back(page.records[0], position)


def _reaches_back(oldest: Record, position: ShardPosition) -> bool:
    number, arrived = oldest.sequence_number, oldest.approximate_arrival_timestamp
    match position:
        case After(position=last):
            # If the oldest record is an aggregate, the position may lie within it.
            return last >= Position(number, 0)
        case At(sequence_number=first):
            return Position(first) >= Position(number)
        case Start(timestamp=float(since)):
            return arrived is not None and arrived < since
    return False
