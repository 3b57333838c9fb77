"""Deletes what an app has stored, so that its clients begin as if they were new.

The group's row is marked first, and deleted last: a client that starts in between is
refused, and what a crash left half done is done by the next try.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.admin.context import report_partial_failure, require_no_clients
from kinesumer.coordination.shard_sync import write_all
from kinesumer.coordination.startup_checks import require_no_go_clients
from kinesumer.errors import GroupBusyError
from kinesumer.model.rows import Key
from kinesumer.model.streams import stream_name
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes, rows, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesumer.model.rows import Row
    from kinesumer.runtime.context import ClientContext


class StreamRows(NamedTuple):
    """What is stored of one stream."""

    arn: str
    shards: list[Row]
    go: list[Row]
    """Positions that Kinesumer for Go left."""

    @property
    def positions(self) -> int:
        """How many shards have a position."""
        return sum("sequence_number" in row for row in self.shards)


class Inventory(NamedTuple):
    """All rows of an app, whatever stands in them."""

    streams: list[StreamRows]
    group: list[Row]
    """The group's own row and those of its streams."""
    members: list[Row]
    leader: list[Row]

    @property
    def shards(self) -> int:
        """How many shard rows there are."""
        return sum(len(stream.shards) for stream in self.streams)

    @property
    def go_positions(self) -> int:
        """How many positions Kinesumer for Go left of these streams."""
        return sum(len(stream.go) for stream in self.streams)

    @property
    def rows(self) -> int:
        """How many rows a reset deletes, Go's not counted."""
        return self.shards + sum(map(len, (self.group, self.members, self.leader)))


async def read_inventory(context: ClientContext) -> Inventory:
    """Read all that an app has stored."""
    app = context.app
    group, members, leader = await asyncio.gather(
        _query(context, rows.group_key(app).pk),
        _query(context, rows.member_key(app, "").pk),
        _query(context, rows.leader_key(app).pk),
    )
    arns = [
        sk.removeprefix(rows.STREAM_PREFIX)
        for row in group
        if (sk := str(row["sk"])).startswith(rows.STREAM_PREFIX)
    ]
    streams = await asyncio.gather(*(_stream(context, arn) for arn in arns))
    return Inventory(list(streams), group, members, leader)


async def _stream(context: ClientContext, arn: str) -> StreamRows:
    return StreamRows(
        arn,
        await _query(context, rows.shard_partition(context.app, arn)),
        await _query(context, rows.go_partition(context.app, stream_name(arn))),
    )


async def _query(context: ClientContext, partition: str) -> list[Row]:
    return await context.until_available(
        lambda: context.store.query(partition, consistent=True)
    )


async def require_idle(context: ClientContext, *, with_go: bool) -> None:
    """Raise GroupBusyError while anybody uses the rows.

    Clients that died without a word are marked dead, which takes their lease (8 s).
    """
    await require_no_clients(context)
    if with_go:
        await require_no_go_clients(context)


async def reset(context: ClientContext, *, with_go: bool) -> Inventory:
    """Delete all rows of an app at rest, and return what they were.

    Raises GroupBusyError, with nothing deleted, if a client has started since
    ``check_rest()``. ``with_go`` deletes the positions that Kinesumer for Go left of
    the app's streams, too.
    """
    app = context.app
    left = (
        f"the reset of app {app!r} isn't complete, and its clients don't start before "
        "it is: run it again"
    )
    # Where somebody deleted the group's row, there is none to mark.
    await context.write(writes.create_group(app, context.new_id()))
    with report_partial_failure(left):
        await context.write(admin_writes.begin_reset(app))
        found = await read_inventory(context)
    living = [p for p in map(rows.read_liveness, found.members) if not p.dead]
    if living:
        await context.write(admin_writes.give_up_reset(app))
        names = escape_unprintable(", ".join(pulse.client_id for pulse in living))
        raise GroupBusyError(
            "clients",
            f"clients of app {app!r} have just started: {names}; nothing was deleted",
        )
    with report_partial_failure(left):
        await _delete_all(context, found, with_go=with_go)
    return found


async def _delete_all(
    context: ClientContext, found: Inventory, *, with_go: bool
) -> None:
    for stream in found.streams:
        await _delete(context, stream.go if with_go else ())
        await _delete(context, stream.shards)
    own = rows.group_key(context.app)
    await _delete(context, (row for row in found.group if row["sk"] != own.sk))
    await _delete(context, found.members)
    await _delete(context, found.leader)
    await context.write(admin_writes.delete(own))


async def _delete(context: ClientContext, found: Iterable[Row]) -> None:
    keys = [Key(str(row["pk"]), str(row["sk"])) for row in found]
    await write_all(context, [admin_writes.delete(key) for key in keys])
