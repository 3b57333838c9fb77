"""Wait until clients have carried out what an operator changed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from kinesumer.admin.snapshot import read_snapshot
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
    """Find the shards of a paused target that clients still consume."""
    return lambda snapshot: [
        row for row in _owned(snapshot) if target.covers(row) and not row.ended
    ]


def still_held_by(member: MemberRow) -> FindHeld:
    """Find the shards that a drained client still consumes."""
    return lambda snapshot: [
        row for row in _owned(snapshot) if row.owner == member.session
    ]


def still_held_since(seeked: Sequence[ShardRow]) -> FindHeld:
    """Find the seeked shards that are still consumed from their old positions."""
    then = {row.key: row for row in seeked}
    return lambda snapshot: [
        row
        for row in _owned(snapshot)
        if (before := then.get(row.key)) is not None
        and row.owner == before.owner
        and row.epoch <= before.epoch
    ]


def _owned(snapshot: Snapshot) -> list[ShardRow]:
    """Return the shards of live sessions, since dead clients consume nothing."""
    rows = (row for page in snapshot.shards.values() for row in page)
    return [row for row in rows if row.owner in snapshot.sessions]


async def wait_until_free(
    context: ClientContext, find_held: FindHeld, seconds: float
) -> list[ShardRow]:
    """Poll until no shard is held; return the shards held when the time is over.

    Raises KinesumerError.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            snapshot = await context.until_available(
                lambda: read_snapshot(context.store, context.app)
            )
        except TransientError as error:
            raise KinesumerError(
                "stored, but its effect couldn't be confirmed (see kinesumer status): "
                f"{error}"
            ) from error
        held = find_held(snapshot)
        if not held or time.monotonic() >= deadline:
            return held
        await asyncio.sleep(POLL_SECONDS)
