"""Tell from inside of a process how its client is, without a request to AWS."""

from __future__ import annotations

from kinesumer import blocking
from kinesumer.client import Kinesumer
from kinesumer.consuming.delivery_protocol import oldest_of
from kinesumer.coordination.group import GroupConsumer
from kinesumer.ops.group.observation import ClientHealth

STARTING = ClientHealth(True, False, None, "it starts")


def read_health(client: Kinesumer | blocking.Kinesumer) -> ClientHealth:
    """Return what ``kinesumer health`` finds out from the table. Any thread may call.

    While the state store doesn't answer, it is unknown whether the client is alive.
    """
    own = client._client if isinstance(client, blocking.Kinesumer) else client
    group = own._lifecycle.group
    if group is None:
        return STARTING
    if _is_stuck(group):
        why = "user code makes no progress, so its shards go to other clients"
        return ClientHealth(False, False, "dead", why)
    session = group.session
    if session is None:
        return ClientHealth(True, False, None, "it registers")
    if not session.leader.lease.permits(group.context.clock.now()):
        return ClientHealth(None, False, None, "the state store didn't answer in time")
    member = session.member
    is_up, is_planned = member.state == "up", member.range is not None
    plan = "has its part of the plan" if is_planned else "waits for a plan"
    why = "its heartbeat advances" + (f", and it {plan}" if is_up else "")
    return ClientHealth(True, is_up and is_planned, member.state, why)


def _is_stuck(group: GroupConsumer) -> bool:
    """Return whether user code is at one record for ``max_processing_seconds``."""
    context = group.context
    work = oldest_of(group.delivery, group.owned_shards(), context.loop_clock)
    limit = context.config.max_processing_seconds
    return work is not None and context.clock.now() - work.since > limit
