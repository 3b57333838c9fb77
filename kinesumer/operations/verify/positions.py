"""Looks at what stands in a shard at a row's position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.errors import SourceUnavailableError
from kinesumer.operations.doctor.finding import Severity
from kinesumer.operations.peeking import Found, oldest, peek
from kinesumer.operations.verify.verdict import (
    ENDED,
    GONE,
    NOT_STARTED,
    UNCHECKED,
    Verdict,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesumer.model import Shard
    from kinesumer.operations.asking import Asking
    from kinesumer.ports import StreamSource
    from kinesumer.wire.rows import ShardRow


async def look(
    asking: Asking, source: StreamSource, row: ShardRow, listing: Sequence[Shard]
) -> Verdict:
    """Return what is to be said of a row's position, also if it can't be asked."""
    if row.ended:
        return ENDED
    if row.position is None:
        listed = any(shard.shard_id == row.key.shard_id for shard in listing)
        return NOT_STARTED if listed else GONE
    number = row.position.sequence_number
    try:
        seen = await peek(asking, source, row.key, number)
        first = None
        if seen.found is Found.THERE and seen.first != number:
            first = await oldest(asking, source, row.key)
    except SourceUnavailableError as error:
        return Verdict(UNCHECKED, Severity.WARNING, str(error))
    return judge(row.position, seen, first)
