"""Drain clients of their shards while they run.

Like a seek, a drain is a conditional write of one row that the client reads sooner or
later. A Spark query reads its group's rows only when it starts, so it can't be drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesumer.coordination.pauses import QUERY_ADVICE, _live_members
from kinesumer.coordination.startup_checks import require_no_spark_query
from kinesumer.core import plan
from kinesumer.errors import ConfigurationError, KinesumerError
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import admin_writes

if TYPE_CHECKING:
    from kinesumer.model.rows import MemberRow
    from kinesumer.runtime.context import ClientContext


async def drain(
    context: ClientContext,
    client_id: str,
    *,
    undo: bool = False,
    even_last: bool = False,
) -> MemberRow:
    """Take a client's shards away while it runs; ``undo`` lets it own shards again.

    Returns its row as it was before. Raises ConfigurationError if no such client is
    alive, and, unless ``even_last``, if no other client could take its shards.
    """
    await require_no_spark_query(context, QUERY_ADVICE)
    members = plan.live_clients(await _live_members(context))
    others = {member.client_id: member for member in members}
    member = others.pop(client_id, None)
    if member is None:
        names = escape_unprintable(", ".join(others)) or "none"
        raise ConfigurationError(
            f"no client {client_id!r} of app {context.app!r} is alive; alive: {names}"
        )
    if not (undo or even_last or plan.assignable(list(others.values()))):
        raise ConfigurationError(
            f"{escape_unprintable(client_id)} is the last client that takes shards: "
            "without it nothing is consumed; start another one first, or pause the app"
        )
    written = await context.write(
        admin_writes.drain(context.app, member, drained=not undo)
    )
    if not written.applied:
        raise KinesumerError(
            f"{escape_unprintable(client_id)} died or registered again meanwhile; "
            "try again"
        )
    return member
