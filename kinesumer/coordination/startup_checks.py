"""Check the state store's identity, and who else uses the app or the client's id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from kinesumer.coordination.membership import fence
from kinesumer.core.liveness import BeatCounter, HeartbeatWatch
from kinesumer.errors import (
    ClientIdInUseError,
    GroupBusyError,
    StateStoreRecreatedError,
)
from kinesumer.model.rows import QUERY_ID, LivenessRow, Row
from kinesumer.runtime.context import ClientContext
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes

# A client of Kinesumer for Go counts as alive for this time after it updates its row.
# Chosen: it updates the row every few seconds, and the clocks may differ.
GO_FRESH_SECONDS = 60.0


class StoreIdentity(NamedTuple):
    """The identity of a state store; a recreated or restored table has a new one."""

    table_id: str
    group_id: str


async def check_group(
    context: ClientContext, known: StoreIdentity | None
) -> StoreIdentity:
    """Return the group's identity; create the group if this is its first client.

    Raises StateStoreRecreatedError if it differs from ``known``, and GroupBusyError
    while the group's rows are being deleted.
    """
    table_id = await context.until_available(context.store.verify)
    if known is None:
        write = writes.create_group(context.app, context.new_id())
        row = (await context.write(write)).row
    else:
        row = await context.read(rows.group_key(context.app))
    group = rows.read_group(row) if row else None
    if group is not None and group.resetting:
        raise GroupBusyError(
            "reset",
            f"app {context.app!r} is being reset: start again when kinesumer reset has "
            "ended; if that command was interrupted, run it again",
        )
    current = StoreIdentity(table_id, group.group_id if group else "")
    if known is not None and current != known:
        now_group = escape_unprintable(current.group_id) or "no such group"
        raise StateStoreRecreatedError(
            f"the state store isn't the one that app {context.app!r} was using (table "
            f"{known.table_id}, group {escape_unprintable(known.group_id)}; now "
            f"{current.table_id}, {now_group}): was the table deleted or restored? "
            "Decide where to continue, then start the clients again"
        )
    return current


async def require_no_go_clients(context: ClientContext) -> None:
    """Raise GroupBusyError if clients of Kinesumer for Go run under this app.

    Those clients overwrite checkpoints even of shards that they lost long ago.
    """
    stored = await context.query(f"client#{context.app}")
    fresh = live_go_clients(stored, context.clock.wall())
    if fresh:
        raise GroupBusyError(
            "go-clients",
            f"clients of Kinesumer for Go are alive under app {context.app!r}: "
            f"{escape_unprintable(', '.join(fresh))}; stop them, wait a minute and "
            "start again, or use another app name",
        )


RESTART_ADVICE = "stop the query and start again, or use another app name"


def live_go_clients(stored: Iterable[Row], now: float) -> list[str]:
    """Return the ids of Go clients whose rows were updated in the last minute."""
    return [
        str(row["sk"])
        for row in stored
        if abs(now - rows.timestamp_seconds(row.get("last_update"))) < GO_FRESH_SECONDS
    ]


async def require_no_spark_query(
    context: ClientContext, advice: str = RESTART_ADVICE
) -> None:
    """Raise GroupBusyError if a live Spark query holds this app's group.

    A query that has died is fenced. Clients and queries check for each other after they
    have registered. So if both start at the same time, at least one sees the other.
    """
    key = rows.member_key(context.app, QUERY_ID)

    async def read() -> list[LivenessRow]:
        row = await context.read(key)
        return [rows.read_liveness(row)] if row else []

    for query in await find_live_members(context, read):
        raise GroupBusyError(
            "spark-query",
            f"a Spark query holds app {context.app!r}: member {query.client_id}, "
            f"session {escape_unprintable(str(query.session))}; {advice}",
        )


async def outlive_predecessor(context: ClientContext, session: str) -> None:
    """Wait until the lease of this id's former session ends, and fence that session.

    Raises ClientIdInUseError if it is alive. ``session`` is the one that registers.
    """
    key = rows.member_key(context.app, context.client_id)

    async def read() -> list[LivenessRow]:
        row = await context.read(key)
        before = rows.read_liveness(row) if row else None
        # Ignore a delayed registration of this process.
        return [] if before is None or before.session == session else [before]

    if await find_live_members(context, read):
        raise ClientIdInUseError(
            f"client id {context.client_id!r} of app {context.app!r} is in use "
            "by another live process; give each process its own id"
        )


async def read_all_liveness(context: ClientContext) -> list[LivenessRow]:
    """Return the liveness of all members of the app, read consistently."""
    partition = rows.member_key(context.app, "").pk
    return [rows.read_liveness(row) for row in await context.query(partition)]


async def find_live_members(
    context: ClientContext, read: Callable[[], Awaitable[list[LivenessRow]]]
) -> list[LivenessRow]:
    """Watch members until one is seen alive or all are dead. Return the live ones.

    A member whose heartbeat doesn't change for the length of its lease is fenced.
    """
    beat_counter, watch = BeatCounter(), HeartbeatWatch()
    beat_seconds = context.config.heartbeat_interval_seconds
    while True:
        started = context.clock.now()
        members = [member for member in await read() if not member.dead]
        beating = beat_counter.beating(members)
        if beating or not members:
            return beating
        if context.clock.now() - started > beat_seconds:
            # The read was slow. In an outage no member can send heartbeats.
            watch.reset()
        for member in watch.observe(members, context.clock.now(), beat_seconds):
            if await fence(context, member) is None:
                watch.reset()
        await asyncio.sleep(beat_seconds / 4)
