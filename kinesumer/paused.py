"""What operators paused, as one session last read it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kinesumer.core.ownership import Pauses
from kinesumer.errors import GroupHeldError
from kinesumer.shard_rows import read_shards
from kinesumer.wire import rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.context import Context
    from kinesumer.ports import Row

PAUSES_SECONDS = 600.0
"""How often it is read though no operator gave notice."""


async def read_pauses(context: Context, *, consistent: bool) -> Pauses:
    """Return what is paused beside single shards. Raises StoreUnavailableError."""
    partition = rows.group_key(context.app).pk
    found = await context.store.query(partition, consistent=consistent)
    for row in found:
        own = row["sk"] == rows.GROUP_SK
        context.all_readable(rows.read_group if own else rows.read_stream, [row])
    marked = {str(row["sk"]) for row in found if _is_marked(row)}
    arns = (sk.removeprefix(rows.STREAM_PREFIX) for sk in marked - {rows.GROUP_SK})
    return Pauses(rows.GROUP_SK in marked, frozenset(arns))


def _is_marked(row: Row) -> bool:
    """Tell whether a row is paused: none is too broken for that, or it would go on."""
    return row.get("paused", False) is not False


async def refuse_paused(context: Context, arns: Iterable[str]) -> None:
    """Raise GroupHeldError if an operator has paused any shard of these streams."""
    pauses = await context.until_available(
        lambda: read_pauses(context, consistent=True)
    )
    for arn in arns:
        if pauses.everything or arn in pauses.streams:
            raise _paused(context, arn)
        stored = await read_shards(context, arn, consistent=True)
        if paused := [row.key.shard_id for row in stored.rows if row.paused]:
            raise _paused(context, f"{', '.join(paused)} of {arn}")


def _paused(context: Context, what: str) -> GroupHeldError:
    return GroupHeldError(
        f"app {context.app!r} is paused ({what}), and a query can't leave shards out: "
        "resume it with kinesumer resume, and start the query again"
    )


class Paused:
    """Reads it when a session begins, on notice, and now and then."""

    def __init__(self, context: Context) -> None:
        self.pauses = Pauses()
        self._context = context
        self._next_read = -math.inf

    async def look(self, *, noticed: bool) -> None:
        """Read what is paused if it may have changed. Raises StoreUnavailableError."""
        now = self._context.clock.now()
        if noticed or now >= self._next_read:
            self.pauses = await read_pauses(self._context, consistent=noticed)
            self._next_read = now + PAUSES_SECONDS
