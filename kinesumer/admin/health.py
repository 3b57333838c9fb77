"""Decide from its row alone whether one client is alive, for probes of its machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.errors import StoreUnavailableError
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows

if TYPE_CHECKING:
    from kinesumer.model.rows import LivenessRow, Row
    from kinesumer.ports import Clock, StateStore

READS_PER_LEASE = 8


class ClientHealth(NamedTuple):
    """The health of a client."""

    alive: bool | None
    """None if the state store didn't answer."""
    ready: bool
    state: str | None
    why: str
    """The reason, in words."""

    def report(self, app: str, client_id: str) -> dict[str, Any]:
        """Return the health as JSON."""
        return {"app": app, "client_id": client_id, **self._asdict()}


async def check_client(
    store: StateStore, clock: Clock, app: str, client_id: str
) -> ClientHealth:
    """Read a client's row until its heartbeat changes, for at most its lease.

    A healthy client takes two reads, a quarter of the lease apart: one heartbeat. A row
    that is marked dead is read too, since a fenced client registers again. Raises
    CorruptRowError, and the state store's permanent errors.
    """
    key = rows.member_key(app, client_id)
    try:
        first = await store.get(key)
    except StoreUnavailableError as error:
        return _unknown(error)
    if first is None:
        return ClientHealth(False, False, None, "no client of this id has registered")
    before = rows.read_liveness(first)
    lease = before.lease_ms / 1000
    began, pause = clock.now(), 2 * lease / READS_PER_LEASE
    failure: StoreUnavailableError | None = None
    while clock.now() - began < lease:
        await asyncio.sleep(pause)
        pause = lease / READS_PER_LEASE
        try:
            row = await store.get(key)
        except StoreUnavailableError as error:
            failure = error
            continue
        now = rows.read_liveness(row) if row is not None else None
        if row is not None and now is not None and not now.dead:
            if (now.session, now.beat) != (before.session, before.beat):
                return _alive(row)
    if failure is not None:
        # The client couldn't send heartbeats during an outage either.
        return _unknown(failure)
    return _dead(before, lease)


def _alive(row: Row) -> ClientHealth:
    member = rows.read_member(row)
    if member.state != "up":
        return ClientHealth(True, False, member.state, "its heartbeat advances")
    if member.range is None:
        why = "its heartbeat advances, and it waits for a plan"
        return ClientHealth(True, False, member.state, why)
    why = "its heartbeat advances, and it has its part of the plan"
    return ClientHealth(True, True, member.state, why)


def _dead(pulse: LivenessRow, lease: float) -> ClientHealth:
    if pulse.dead:
        why = f"it left or was fenced, and didn't return in {lease:g} s"
        return ClientHealth(False, False, "dead", why)
    why = f"no heartbeat for its lease of {lease:g} s"
    return ClientHealth(False, False, escape_unprintable(pulse.state), why)


def _unknown(error: StoreUnavailableError) -> ClientHealth:
    return ClientHealth(None, False, None, f"the state store didn't answer: {error}")
