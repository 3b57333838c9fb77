"""Drain clients of their shards, and wait until clients have released shards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kinesumer.coordination.pauses import QUERY_ADVICE, Target, live_members
from kinesumer.coordination.startup_checks import require_no_spark_query
from kinesumer.core import plan
from kinesumer.errors import ConfigurationError, KinesumerError, TransientError
from kinesumer.model.rows import MemberRow, ShardRow
from kinesumer.ops.group.observation import POLL_SECONDS
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes

FindHeld = Callable[[Snapshot], list[ShardRow]]


async def drain(
    context: ClientContext,
    client_id: str,
    *,
    undo: bool = False,
    even_last: bool = False,
) -> MemberRow:
    """Take a client's shards away while it runs; ``undo`` lets it own shards again.

    Returns the client's row before the change. Raises ConfigurationError if the client
    isn't alive, or if it is the last client and ``even_last`` is false.
    """
    # A Spark query can't be drained: it reads its group's rows only when it starts.
    await require_no_spark_query(context, QUERY_ADVICE)
    members = plan.live_clients(await live_members(context))
    others = {member.client_id: member for member in members}
    member = others.pop(client_id, None)
    if member is None:
        names = escape_unprintable(", ".join(others)) or "none"
        raise ConfigurationError(
            f"no client {client_id!r} of app {context.app!r} is alive; name a live "
            f"one ({names})"
        )
    name = escape_unprintable(client_id)
    if not (undo or even_last or plan.assignable(list(others.values()))):
        raise ConfigurationError(
            f"{name} is the last client that takes shards: "
            "without it nothing is consumed; start another one first, or pause the app"
        )
    written = await context.write(
        admin_writes.drain(context.app, member, drained=not undo)
    )
    if not written.applied:
        raise KinesumerError(f"{name} died or registered again meanwhile; try again")
    return member


def still_held_in(target: Target) -> FindHeld:
    """Return a function that finds a paused target's shards that are still consumed."""
    return lambda snapshot: [
        row for row in _owned(snapshot) if target.covers(row) and not row.ended
    ]


def still_held_by(member: MemberRow) -> FindHeld:
    """Return a function that finds the shards that a drained client still consumes."""
    return lambda snapshot: [
        row for row in _owned(snapshot) if row.owner == member.session
    ]


def still_held_since(seeked: Sequence[ShardRow]) -> FindHeld:
    """Return a function that finds seeked shards still consumed from old positions."""
    then = {row.key: row for row in seeked}
    # A claim after the seek raises the epoch, and reads from the new position.
    return lambda snapshot: [
        row
        for row in _owned(snapshot)
        if (before := then.get(row.key)) is not None
        and row.owner == before.owner
        and row.epoch <= before.epoch
    ]


def _owned(snapshot: Snapshot) -> list[ShardRow]:
    """Return the shards that live clients own; dead clients consume nothing."""
    rows = snapshot.rows
    return [row for row in rows if row.owner in snapshot.sessions]


async def wait_until_free(
    context: ClientContext, find_held: FindHeld, seconds: float
) -> list[ShardRow]:
    """Poll until no shard is held; return the shards still held at the timeout."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            snapshot = await context.until_available(
                lambda: read_snapshot(context.store, context.app)
            )
        except TransientError as error:
            raise KinesumerError(
                "stored, but its effect couldn't be confirmed; check kinesumer status: "
                f"{error}"
            ) from error
        held = find_held(snapshot)
        if not held or time.monotonic() >= deadline:
            return held
        await asyncio.sleep(POLL_SECONDS)
