"""Whether one client lives, from its row alone: what a probe of its machine asks."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from kinesumer.errors import StoreUnavailableError
from kinesumer.runtime.text import escape_unprintable
from kinesumer.wire import rows

if TYPE_CHECKING:
    from kinesumer.model.rows import LivenessRow, Row
    from kinesumer.ports import Clock, StateStore

LOOKS_PER_LEASE = 8


class ClientHealth(NamedTuple):
    """What was seen of a client. ``alive`` is None if the state store didn't answer."""

    alive: bool | None
    ready: bool
    state: str | None
    why: str
    """In words, what speaks for it."""

    def report(self, app: str, client_id: str) -> dict[str, Any]:
        """Return it as JSON."""
        return {"app": app, "client_id": client_id, **self._asdict()}


async def check_client(
    store: StateStore, clock: Clock, app: str, client_id: str
) -> ClientHealth:
    """Look at a client's row until its heart beats, for as long as its lease.

    Two reads where all is well, a quarter of the lease apart: a beat. A row that is
    marked dead is watched too, since who was fenced registers anew. Raises
    CorruptRowError, and what the state store raises for good.
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
    began, pause = clock.now(), 2 * lease / LOOKS_PER_LEASE
    missed: StoreUnavailableError | None = None
    while clock.now() - began < lease:
        await asyncio.sleep(pause)
        pause = lease / LOOKS_PER_LEASE
        try:
            row = await store.get(key)
        except StoreUnavailableError as error:
            missed = error
            continue
        now = rows.read_liveness(row) if row is not None else None
        if row is not None and now is not None and not now.dead:
            if (now.session, now.beat) != (before.session, before.beat):
                return _beating(row)
    if missed is not None:  # an outage: it couldn't beat either
        return _unknown(missed)
    return _silent(before, lease)


def _beating(row: Row) -> ClientHealth:
    member = rows.read_member(row)
    if member.state != "up":
        return ClientHealth(True, False, member.state, "it beats")
    if member.range is None:
        return ClientHealth(True, False, member.state, "it beats, and waits for a plan")
    return ClientHealth(
        True, True, member.state, "it beats, and has its part of the plan"
    )


def _silent(pulse: LivenessRow, lease: float) -> ClientHealth:
    if pulse.dead:
        why = f"it left or was fenced, and wasn't back in {lease:g} s"
        return ClientHealth(False, False, "dead", why)
    why = f"no heartbeat for its lease of {lease:g} s"
    return ClientHealth(False, False, escape_unprintable(pulse.state), why)


def _unknown(error: StoreUnavailableError) -> ClientHealth:
    return ClientHealth(None, False, None, f"the state store didn't answer: {error}")
