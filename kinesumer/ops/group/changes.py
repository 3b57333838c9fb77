"""Drain clients, reset apps, and wait until clients have applied a change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from kinesumer.coordination.pauses import QUERY_ADVICE, Target, live_members
from kinesumer.coordination.shard_sync import write_all
from kinesumer.coordination.startup_checks import (
    require_no_go_clients,
    require_no_spark_query,
)
from kinesumer.core import plan
from kinesumer.errors import (
    ConfigurationError,
    GroupBusyError,
    KinesumerError,
    TransientError,
)
from kinesumer.model.rows import Key, MemberRow, Row, ShardRow
from kinesumer.model.streams import stream_name
from kinesumer.ops.group.connect import report_partial_failure, require_no_clients
from kinesumer.ops.group.observation import POLL_SECONDS
from kinesumer.ops.group.snapshot import Snapshot, read_snapshot
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes, rows, writes

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
        row for row in snapshot.held if target.covers(row) and not row.ended
    ]


def still_held_by(member: MemberRow) -> FindHeld:
    """Return a function that finds the shards that a drained client still consumes."""
    held_by = member.session
    return lambda snapshot: [row for row in snapshot.held if row.owner == held_by]


def still_held_since(seeked: Sequence[ShardRow]) -> FindHeld:
    """Return a function that finds seeked shards still consumed from old positions."""
    # A claim after the seek raises the epoch, and reads from the new position.
    then = {(row.key, row.owner): row.epoch for row in seeked}
    return lambda snapshot: [
        row for row in snapshot.held if row.epoch <= then.get((row.key, row.owner), -1)
    ]


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


# --- reset ----------------------------------------------------------------------------


class StreamRows(NamedTuple):
    """The rows of one stream."""

    arn: str
    shards: list[Row]
    go: list[Row]  # positions that Kinesumer for Go stored

    @property
    def positions(self) -> int:
        """The number of shards that have a position."""
        return sum("sequence_number" in row for row in self.shards)


class Inventory(NamedTuple):
    """All rows of an app, unparsed."""

    streams: list[StreamRows]
    group: list[Row]  # the group's own row and those of its streams
    members: list[Row]
    leader: list[Row]

    @property
    def shards(self) -> int:
        """The number of shard rows."""
        return sum(len(stream.shards) for stream in self.streams)

    @property
    def go_positions(self) -> int:
        """The number of positions that Kinesumer for Go stored for these streams."""
        return sum(len(stream.go) for stream in self.streams)

    @property
    def rows(self) -> int:
        """The number of rows that a reset deletes, not counting Kinesumer for Go's."""
        return self.shards + len(self.group) + len(self.members) + len(self.leader)


async def read_inventory(context: ClientContext) -> Inventory:
    """Read everything that an app has stored."""
    app, query = context.app, context.query

    async def read_stream(arn: str) -> StreamRows:
        shards = await query(rows.shard_partition(app, arn))
        go = await query(rows.go_partition(app, stream_name(arn)))
        return StreamRows(arn, shards, go)

    keys = rows.group_key(app), rows.member_key(app, ""), rows.leader_key(app)
    group, members, leader = await asyncio.gather(*(query(key.pk) for key in keys))
    arns = [
        sk.removeprefix(rows.STREAM_PREFIX)
        for row in group
        if (sk := str(row["sk"])).startswith(rows.STREAM_PREFIX)
    ]
    streams = await asyncio.gather(*(read_stream(arn) for arn in arns))
    return Inventory(list(streams), group, members, leader)


async def require_idle(context: ClientContext, *, with_go: bool) -> None:
    """Raise GroupBusyError if a client or a Spark query uses the rows."""
    await require_no_clients(context)
    if with_go:
        await require_no_go_clients(context)


async def reset(context: ClientContext, *, with_go: bool) -> Inventory:
    """Delete all rows of an app without clients, and return the rows.

    The group's row is marked first and deleted last, so that no client can start in
    between, and the next reset completes an interrupted one. ``with_go`` also deletes
    the positions of Kinesumer for Go. Raises GroupBusyError, with nothing deleted, if a
    client has started since ``require_idle()``.
    """
    app = context.app
    advice = (
        f"the reset of app {app!r} isn't complete, and its clients can't start before "
        "it is: run it again"
    )
    # Create the group's row if it is missing, so that it can be marked.
    await context.write(writes.create_group(app, context.new_id()))
    with report_partial_failure(advice):
        await context.write(admin_writes.begin_reset(app))
        inventory = await read_inventory(context)
    # A client may have registered between the check of require_idle() and the mark.
    living = [p for p in map(rows.read_liveness, inventory.members) if not p.dead]
    if living:
        await context.write(admin_writes.give_up_reset(app))
        names = escape_unprintable(", ".join(member.client_id for member in living))
        raise GroupBusyError(
            "clients",
            f"clients of app {app!r} have just started: {names}; nothing was deleted: "
            "stop them, then run it again",
        )
    with report_partial_failure(advice):
        await _delete_all(context, inventory, with_go=with_go)
    return inventory


async def _delete_all(
    context: ClientContext, inventory: Inventory, *, with_go: bool
) -> None:
    own = rows.group_key(context.app)
    # A row is deleted before the rows by which it is found, so that the next reset
    # still finds it if this one is interrupted.
    for deleted in (
        *chain(*((s.go if with_go else (), s.shards) for s in inventory.streams)),
        (row for row in inventory.group if row["sk"] != own.sk),
        inventory.members,
        inventory.leader,
    ):
        keys = [Key(str(row["pk"]), str(row["sk"])) for row in deleted]
        await write_all(context, [admin_writes.delete(key) for key in keys])
    await context.write(admin_writes.delete(rows.app_key(context.app)))
    await context.write(admin_writes.delete(own))
