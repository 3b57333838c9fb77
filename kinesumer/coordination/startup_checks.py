"""Whether the state store is the one that this group was using, and nobody else's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from kinesumer.core.liveness import BeatCounter, HeartbeatWatch
from kinesumer.errors import (
    GroupBusyError,
    StateStoreRecreatedError,
    StoreUnavailableError,
)
from kinesumer.model.rows import QUERY_ID
from kinesumer.runtime.failure_log import logger
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from kinesumer.model.rows import LivenessRow, Row
    from kinesumer.runtime.context import ClientContext

GO_FRESH_SECONDS = 60.0
"""A client row of Kinesumer for Go this young belongs to a live one."""


class Identity(NamedTuple):
    """What tells a state store from one made anew, or restored from a backup."""

    table_id: str
    group_id: str


async def check_group(context: ClientContext, known: Identity | None) -> Identity:
    """Return the group's identity, made by the first client; compare it if known.

    Raises StateStoreRecreatedError if it is another one than before, and GroupBusyError
    while its rows are being deleted.
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
            "ended; if it was interrupted, run it again",
        )
    found = Identity(table_id, group.group_id if group else "")
    if known is not None and found != known:
        raise StateStoreRecreatedError(
            f"the state store isn't the one that app {context.app!r} was using (table "
            f"{known.table_id}, group {escape_unprintable(known.group_id)}; now "
            f"{found.table_id}, "
            f"{escape_unprintable(found.group_id) or 'no such group'}): was the table "
            "deleted or "
            "restored? Start the clients again when you know from where to go on"
        )
    return found


async def require_no_go_clients(context: ClientContext) -> None:
    """Raise GroupBusyError if Kinesumer for Go runs under this app.

    Its clients rewrite checkpoints of shards that they lost long ago.
    """
    partition = f"client#{context.app}"
    found = await context.until_available(
        lambda: context.store.query(partition, consistent=True)
    )
    now = context.clock.wall()
    fresh = live_go_clients(found, now)
    if fresh:
        raise GroupBusyError(
            "go-clients",
            f"clients of Kinesumer for Go are alive under app {context.app!r}: "
            f"{escape_unprintable(', '.join(fresh))}; stop them, wait a minute and "
            "start again, or use another app name",
        )


RESTART_ADVICE = "stop the query and start again, or use another app name"


def live_go_clients(found: Iterable[Row], now: float) -> list[str]:
    """Return the ids of the clients in a Go fleet's partition that seem to live."""
    return [
        str(row["sk"])
        for row in found
        if abs(now - rows.timestamp_seconds(row.get("last_update"))) < GO_FRESH_SECONDS
    ]


async def require_no_spark_query(
    context: ClientContext, advice: str = RESTART_ADVICE
) -> None:
    """Raise GroupBusyError if a Spark query holds this app's group; fence a dead one.

    Both register before they look, so that of two who start at once one sees the other.
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


async def find_live_members(
    context: ClientContext, read: Callable[[], Awaitable[list[LivenessRow]]]
) -> list[LivenessRow]:
    """Watch members until one is seen to live, which is returned, or all are dead.

    Whose heartbeat doesn't change for its lease is fenced.
    """
    beat_counter, watch = BeatCounter(), HeartbeatWatch()
    beat_seconds = context.config.heartbeat_interval_seconds
    while True:
        asked = context.clock.now()
        members = [member for member in await read() if not member.dead]
        beating = beat_counter.beating(members)
        if beating or not members:
            return beating
        if context.clock.now() - asked > beat_seconds:
            watch.reset()  # an outage: they couldn't beat either
        for member in watch.observe(members, context.clock.now(), beat_seconds):
            await _fence(context, member)
        await asyncio.sleep(beat_seconds / 4)


async def _fence(context: ClientContext, member: LivenessRow) -> None:
    """Try once: after an outage a repeated try would hit who couldn't beat yet."""
    moment = rows.timestamp_text(context.clock.wall())
    try:
        await context.store.write(writes.fence(context.app, member, moment))
    except StoreUnavailableError as error:
        context.failure_log.record_failure("state store", error)
        return
    logger.warning(
        "%s is dead: no heartbeat for %.1f s",
        escape_unprintable(member.client_id),
        member.lease_ms / 1000,
        extra={"client_id": member.client_id, "session": member.session},
    )
