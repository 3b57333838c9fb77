"""Whether the state store is the one that this group was using, and nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesumer.errors import GoFleetAliveError, StateStoreReplacedError
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from kinesumer.context import Context

GO_FRESH_SECONDS = 60.0
"""A client row of Kinesumer for Go this young belongs to a live one."""


class Identity(NamedTuple):
    """What tells a state store from one made anew, or restored from a backup."""

    table_id: str
    group_id: str


async def check_group(context: Context, known: Identity | None) -> Identity:
    """Return the group's identity, made by the first client; compare it if known.

    Raises StateStoreReplacedError if it is another one than before.
    """
    table_id = await context.until_available(context.store.verify)
    if known is None:
        write = writes.create_group(context.app, context.new_id())
        row = (await context.write(write)).row
    else:
        row = await context.read(rows.group_key(context.app))
    found = Identity(table_id, str(row.get("group_id")) if row else "")
    if known is not None and found != known:
        raise StateStoreReplacedError(
            f"the state store isn't the one that app {context.app!r} was using (table "
            f"{known.table_id}, group {known.group_id}; now {found.table_id}, "
            f"{found.group_id or 'no such group'}): was the table deleted or restored? "
            "Start the clients again when you know from where to go on"
        )
    return found


async def refuse_go_fleet(context: Context) -> None:
    """Raise GoFleetAliveError if Kinesumer for Go runs under this app.

    Its clients rewrite checkpoints of shards that they lost long ago.
    """
    partition = f"client#{context.app}"
    found = await context.until_available(
        lambda: context.store.query(partition, consistent=True)
    )
    now = context.clock.wall()
    fresh = [
        str(row["sk"])
        for row in found
        if abs(now - rows.timestamp_seconds(row.get("last_update"))) < GO_FRESH_SECONDS
    ]
    if fresh:
        raise GoFleetAliveError(
            f"clients of Kinesumer for Go are alive under app {context.app!r}: "
            f"{', '.join(fresh)}; stop them, wait a minute and start again, or use "
            "another app name"
        )
