"""What operators' commands change, planned for several streams, and waited for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from kinesumer import control, lookup
from kinesumer.errors import KinesumerError, TransientError
from kinesumer.model import Start
from kinesumer.operations import snapshot
from kinesumer.streams import open_streams

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesumer.aws.session import Clients
    from kinesumer.context import Context
    from kinesumer.control import SeekPlan, Target
    from kinesumer.model import Position
    from kinesumer.operations.reaching import Roles
    from kinesumer.operations.snapshot import Snapshot
    from kinesumer.wire.rows import MemberRow, ShardRow

    Held = Callable[[Snapshot], list[ShardRow]]

LOOK_SECONDS = 0.5


class Place(NamedTuple):
    """What to seek, and where to."""

    to: Position | Start
    stream: str | None = None
    """A name or an ARN; None: all streams that the app has consumed."""
    shard_id: str | None = None


async def plan_seeks(
    context: Context, clients: Clients, place: Place, roles: Roles
) -> list[SeekPlan]:
    """Return what a seek will do in each stream; write nothing.

    Raises as ``control.plan_seek`` does, StreamMissingError, and ConfigurationError for
    a time that lies in the future.
    """
    from kinesumer.aws.kinesis import open_source

    if place.stream is None:
        arns = [row.arn for row in await lookup.read_streams(context)]
    else:
        arns = [(await lookup.find_stream(context, place.stream)).arn]
    start = place.to if isinstance(place.to, Start) else Start.LATEST
    opened = await open_streams(
        context,
        [roles.stream(arn) for arn in arns],
        start,
        lambda stream: open_source(clients, stream),
    )
    return [
        await control.plan_seek(context, stream, place.to, place.shard_id)
        for stream in opened.values()
    ]


# --- until clients have seen it ------------------------------------------------------


def held_in(target: Target) -> Held:
    """Tell which shards of what was paused clients still consume."""
    return lambda found: [
        row for row in _owned(found) if target.covers(row) and not row.ended
    ]


def held_by(member: MemberRow) -> Held:
    """Tell which shards a drained client still consumes."""
    return lambda found: [row for row in _owned(found) if row.owner == member.session]


def held_since(sought: Sequence[ShardRow]) -> Held:
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
    context: Context, held: Held, seconds: float
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
        await asyncio.sleep(LOOK_SECONDS)
