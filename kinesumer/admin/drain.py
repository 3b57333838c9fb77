"""What operators change while clients run: pauses, drained clients, seeks.

Every change is conditional writes of single rows that clients find there sooner or
later; notices have them look at once. A Spark query reads its group's rows when it
starts only, so nothing of this is done while one lives.
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
    """Take a client's shards away for as long as it runs, or let it have some again.

    Returns its row as it was before. Raises ConfigurationError if no such client lives,
    and, unless ``even_last``, if no other would be left to take its shards.
    """
    await require_no_spark_query(context, QUERY_ADVICE)
    members = plan.live_clients(await _live_members(context))
    found = {member.client_id: member for member in members}
    member = found.pop(client_id, None)
    if member is None:
        names = escape_unprintable(", ".join(found)) or "none"
        raise ConfigurationError(
            f"no client {client_id!r} of app {context.app!r} is alive; there is {names}"
        )
    if not (undo or even_last or plan.assignable(list(found.values()))):
        raise ConfigurationError(
            f"{escape_unprintable(client_id)} is the last client that takes shards: "
            "without it "
            "nothing is consumed; start another one first, or pause the app"
        )
    written = await context.write(
        admin_writes.drain(context.app, member, drained=not undo)
    )
    if not written.applied:
        raise KinesumerError(
            f"{escape_unprintable(client_id)} has just died or begun anew"
        )
    return member
