"""Delete everything that an app has stored, so that its clients begin anew.

The group's row is marked first and deleted last: a client can't start in between, and
after a crash the next reset completes the work.
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
    """The rows of one stream."""

    arn: str
    shards: list[Row]
    go: list[Row]
    """Positions that Kinesumer for Go stored."""

    @property
    def positions(self) -> int:
        """The number of shards that have a position."""
        return sum("sequence_number" in row for row in self.shards)


class Inventory(NamedTuple):
    """All rows of an app, unparsed."""

    streams: list[StreamRows]
    group: list[Row]
    """The group's own row and those of its streams."""
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
        return self.shards + sum(map(len, (self.group, self.members, self.leader)))


async def read_inventory(context: ClientContext) -> Inventory:
    """Read everything that an app has stored."""
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
    """Raise GroupBusyError while a client uses the rows.

    Marks crashed clients dead, which takes their lease (8 s).
    """
    await require_no_clients(context)
    if with_go:
        await require_no_go_clients(context)


async def reset(context: ClientContext, *, with_go: bool) -> Inventory:
    """Delete all rows of an idle app, and return them.

    ``with_go`` also deletes the positions that Kinesumer for Go stored for the app's
    streams. Raises GroupBusyError, with nothing deleted, if a client has started
    since ``require_idle()``.
    """
    app = context.app
    advice = (
        f"the reset of app {app!r} isn't complete, and its clients can't start before "
        "it is: run it again"
    )
    # A deleted group row couldn't be marked.
    await context.write(writes.create_group(app, context.new_id()))
    with report_partial_failure(advice):
        await context.write(admin_writes.begin_reset(app))
        inventory = await read_inventory(context)
    living = [p for p in map(rows.read_liveness, inventory.members) if not p.dead]
    if living:
        await context.write(admin_writes.give_up_reset(app))
        names = escape_unprintable(", ".join(pulse.client_id for pulse in living))
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
    for stream in inventory.streams:
        await _delete(context, stream.go if with_go else ())
        await _delete(context, stream.shards)
    own = rows.group_key(context.app)
    await _delete(context, (row for row in inventory.group if row["sk"] != own.sk))
    await _delete(context, inventory.members)
    await _delete(context, inventory.leader)
    await context.write(admin_writes.delete(own))


async def _delete(context: ClientContext, deleted: Iterable[Row]) -> None:
    keys = [Key(str(row["pk"]), str(row["sk"])) for row in deleted]
    await write_all(context, [admin_writes.delete(key) for key in keys])
