"""Wait until clients have done what an operator asked."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kinesumer.admin import snapshot
from kinesumer.errors import KinesumerError, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.admin.snapshot import Snapshot
    from kinesumer.coordination.pauses import Target
    from kinesumer.model.rows import MemberRow, ShardRow
    from kinesumer.runtime.context import ClientContext

    FindHeld = Callable[[Snapshot], list[ShardRow]]


POLL_SECONDS = 0.5


def still_held_in(target: Target) -> FindHeld:
    """Tell which shards of what was paused clients still consume."""
    return lambda found: [
        row for row in _owned(found) if target.covers(row) and not row.ended
    ]


def still_held_by(member: MemberRow) -> FindHeld:
    """Tell which shards a drained client still consumes."""
    return lambda found: [row for row in _owned(found) if row.owner == member.session]


def still_held_since(sought: Sequence[ShardRow]) -> FindHeld:
    """Tell which of the shards sought are still consumed from where they were."""
    then = {row.key: row for row in sought}
    return lambda found: [
        row
        for row in _owned(found)
        if (before := then.get(row.key)) is not None
        and row.owner == before.owner
        and row.epoch <= before.epoch
    ]


def _owned(found: Snapshot) -> list[ShardRow]:
    """Return the shards of sessions that live: the dead consume nothing."""
    rows = (row for page in found.shards.values() for row in page)
    return [row for row in rows if row.owner in found.sessions]


async def wait_until_free(
    context: ClientContext, held: FindHeld, seconds: float
) -> list[ShardRow]:
    """Look until no shard is held any more; return those that are when time is over."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            found = await context.until_available(
                lambda: snapshot.take(context.store, context.app)
            )
        except TransientError as error:
            raise KinesumerError(
                f"it is stored, but whether clients have done it can't be seen: {error}"
            ) from error
        left = held(found)
        if not left or time.monotonic() >= deadline:
            return left
        await asyncio.sleep(POLL_SECONDS)
