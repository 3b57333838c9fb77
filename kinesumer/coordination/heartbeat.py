"""A client's sessions: registration, heartbeats, and the end of a session.

In production it runs on a thread of its own. User code that blocks the client's event
loop then doesn't cost the lease.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kinesumer.coordination.events import Failed, SessionLost, SessionRenewed
from kinesumer.coordination.membership import fence
from kinesumer.core.liveness import Lease, interval_seconds, lease_ms
from kinesumer.errors import (
    ClientIdInUseError,
    StoreThrottledError,
    StoreUnavailableError,
)
from kinesumer.model.rows import CLIENT, LivenessRow, MemberRow
from kinesumer.runtime.failure_log import logger
from kinesumer.telemetry.names import HEARTBEAT_DURATION
from kinesumer.wire import rows, writes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesumer.consuming.watchdog import InFlightWork
    from kinesumer.coordination.events import Notify
    from kinesumer.coordination.leader import Leader
    from kinesumer.ports import Write, WriteResult
    from kinesumer.runtime.context import ClientContext

SAFE_LEASE_SHARE = 0.75
"""Share of the lease for which the session itself still trusts it."""
UPDATE_SECONDS = 120.0
"""How often ``last_update`` is written: such a write costs three units, not one."""


class Heartbeater:
    """Registers a session and sends its heartbeats, and registers again when it dies.

    ``notify`` is called with each event, on the event loop that runs this.
    """

    def __init__(
        self,
        context: ClientContext,
        *,
        streams: frozenset[str],
        notify: Notify,
        oldest_work: Callable[[], InFlightWork | None],
        kind: str = CLIENT,
    ) -> None:
        self.state = "up"
        self.streams = streams
        """The streams that the next registration requests."""
        self.registering: MemberRow | None = None
        """The last registration sent: the table may hold it, answered or not."""
        self.is_throttled = False
        """Whether the state store throttled the last heartbeat. Other writes wait until
        it is False; any thread may read it."""
        self._context = context
        self._notify = notify
        self._oldest_work = oldest_work
        self._kind = kind
        self._beat_now = asyncio.Event()
        self._lease_ms = round(context.config.lease_duration_seconds * 1000)
        self._leader: Leader | None = None
        self._leader_task: asyncio.Task[None] | None = None

    def set_state(self, state: str) -> None:
        """Send a heartbeat with a new state at once. "leaving" is final."""
        if self.state not in (state, "leaving"):
            self.state = state
            self._beat_now.set()

    def set_streams(self, streams: frozenset[str]) -> None:
        """Set the streams that the client reads and the next registration requests."""
        self.streams = streams
        if self._leader is not None:
            self._leader.set_reachable(streams)

    def watch_members(self, leader: Leader) -> None:
        """Run a session's leader on this event loop, until the session is dead.

        A leader must see deaths even while its own user code blocks.
        """
        if leader.is_over:
            return
        leader.use_context(self._context)
        self._leader = leader
        loop = asyncio.get_running_loop()
        self._leader_task = loop.create_task(self._watch_members(leader))

    def stop_watching(self) -> None:
        """Stop fencing and planning."""
        if self._leader_task is not None:
            self._leader_task.cancel()

    async def _watch_members(self, leader: Leader) -> None:
        try:
            await leader.run()
        except Exception as error:
            self._notify(Failed(error))

    async def run(self) -> None:
        """Run one session after the other until cancelled."""
        try:
            while True:
                member, lease = await self._register()
                self._notify(SessionRenewed(lease, member))
                await self._beat_until_dead(member, lease)
                lease.end()
                self.stop_watching()
                self._notify(SessionLost(lease))
                await self._wait_for_progress()
        except Exception as error:
            self._notify(Failed(error))
        finally:
            self.stop_watching()
            if self._leader_task is not None:
                await asyncio.wait([self._leader_task])

    # --- registration ---------------------------------------------------------------

    async def _register(self) -> tuple[MemberRow, Lease]:
        context, session = self._context, self._context.new_id()
        first_sent, mine = context.clock.now(), self.registering
        while True:
            row = await context.read(rows.member_key(context.app, context.client_id))
            before = rows.read_liveness(row) if row else None
            if row is not None and before is not None and before.session == session:
                if not before.dead:
                    return rows.read_member(row), self._lease(session, first_sent)
                session = context.new_id()
            elif before is not None and not before.dead:
                await self._wait_out_predecessor(before)
                continue
            first_sent = context.clock.now()
            # The same process registers again: it stays drained.
            is_own = bool(mine and before and mine.session == before.session)
            drained = is_own and row is not None and row.get("drained") is True
            member = self._member(session, before)._replace(drained=drained)
            self.registering = member
            write = writes.register(context.app, member, before, self._timestamp())
            if (await context.write(write)).applied:
                return member, self._lease(session, first_sent)

    def _member(self, session: str, before: LivenessRow | None) -> MemberRow:
        config = self._context.config
        return MemberRow(
            client_id=self._context.client_id,
            session=session,
            incarnation=_next_incarnation(before),
            lease_ms=self._lease_ms,
            weight=config.weight,
            state=self.state,
            streams=self.streams,
            kind=self._kind,
            label=config.label,
        )

    def _lease(self, session: str, first_sent: float) -> Lease:
        return Lease(session, first_sent + SAFE_LEASE_SHARE * self._lease_ms / 1000)

    async def _wait_out_predecessor(self, before: LivenessRow) -> None:
        """Wait until a predecessor's lease has run out, then fence it.

        Raises ClientIdInUseError if the predecessor sends two heartbeats: a single one
        may be a late request.
        """
        context, changes = self._context, 0
        key = rows.member_key(context.app, context.client_id)
        since = context.clock.now()
        while context.clock.now() - since < before.lease_ms / 1000:
            await asyncio.sleep(context.config.heartbeat_interval_seconds / 4)
            started = context.clock.now()
            row = await context.read(key)
            if (
                context.clock.now() - started
                > context.config.heartbeat_interval_seconds
            ):
                # In an outage the predecessor can't send heartbeats either.
                since = context.clock.now()
            now = rows.read_liveness(row) if row else None
            if now is None or now.dead or now.session != before.session:
                return
            if now.beat != before.beat:
                before, since = now, context.clock.now()
                changes += now.state != "leaving"
            if changes > 1:
                raise ClientIdInUseError(
                    f"client id {context.client_id!r} of app {context.app!r} is in use "
                    "by another live process; give each process its own id"
                )
        try:
            await fence(context, before)
        except StoreUnavailableError as error:
            context.failure_log.record_failure("state store", error)

    # --- heartbeats -----------------------------------------------------------------

    async def _beat_until_dead(self, member: MemberRow, lease: Lease) -> None:
        """Send heartbeats until the session's row says that it is dead."""
        clock = self._context.clock
        beat, next_update = 0, clock.now() + UPDATE_SECONDS
        row = member
        while True:
            # After an outage the lease may have lapsed: send the next one at once.
            if lease.permits(clock.now()):
                await self._wait_for_next_beat(row, clock.now())
            if (stuck := self._stuck_work()) is not None:
                lease.end()
                await self._leave(member, stuck)
                return
            beat, first_sent = beat + 1, clock.now()
            update = first_sent >= next_update
            next_lease_ms = lease_ms(self._config_ms(), self._clients(row))
            trusted_ms = min(self._lease_ms, next_lease_ms)
            self._lease_ms = next_lease_ms
            written = await self._beat(
                member, beat, self._timestamp() if update else None
            )
            if not written.applied or written.row is None:
                return
            row = rows.read_member(written.row)
            lease.deadline = first_sent + SAFE_LEASE_SHARE * trusted_ms / 1000
            if update:
                next_update = first_sent + UPDATE_SECONDS
            self._notify(SessionRenewed(lease, row))

    async def _beat(
        self, member: MemberRow, beat: int, moment: str | None
    ) -> WriteResult:
        """Send one heartbeat, repeatedly until it is answered."""
        context = self._context
        while True:
            write = writes.heartbeat(
                context.app,
                member,
                beat,
                state=self.state,
                lease_ms=self._lease_ms,
                moment=moment,
            )
            try:
                written = await self._try(write)
            except StoreUnavailableError as error:
                self.is_throttled = isinstance(error, StoreThrottledError)
                context.failure_log.record_failure("heartbeat", error)
                wait = context.config.heartbeat_interval_seconds / 4
                await asyncio.sleep(wait * (0.5 + context.random.random()))
            else:
                self.is_throttled = False
                context.failure_log.record_success("heartbeat")
                return written

    async def _try(self, write: Write) -> WriteResult:
        try:
            async with asyncio.timeout(self._context.config.heartbeat_interval_seconds):
                with self._context.telemetry.measure(HEARTBEAT_DURATION):
                    return await self._context.store.write(write)
        except TimeoutError:
            raise StoreUnavailableError("no answer to the heartbeat in time") from None

    async def _wait_for_next_beat(self, row: MemberRow, now: float) -> None:
        """Wait until the next heartbeat is due."""
        try:
            async with asyncio.timeout(self._interval(row)):
                await self._beat_now.wait()
        except TimeoutError:
            pass
        self._beat_now.clear()

    def _interval(self, row: MemberRow) -> float:
        """Return the seconds to the next heartbeat: fewer while waiting for a plan."""
        heartbeat = self._context.config.heartbeat_interval_seconds
        clients = self._clients(row)
        # Other clients use the lease in the row until a heartbeat changes it.
        longest = max(heartbeat, self._lease_ms / 4000)
        if row.range is None or (row.range and self.state == "leaving"):
            jitter = 0.75 + 0.5 * self._context.random.random()
            return jitter * min(longest, interval_seconds(heartbeat / 8, clients))
        return min(longest, interval_seconds(heartbeat, clients))

    def _clients(self, row: MemberRow) -> int:
        """Return the number of clients in the plan, or before it of those seen."""
        members = self._leader.watcher.members if self._leader is not None else ()
        return row.clients if row.range is not None else max(row.clients, len(members))

    # --- the watchdog ---------------------------------------------------------------

    def _stuck_work(self) -> InFlightWork | None:
        """Return the work that has made no progress for too long, if any."""
        work, now = self._oldest_work(), self._context.clock.now()
        limit = self._context.config.max_processing_seconds
        return work if work is not None and now - work.since > limit else None

    async def _leave(self, member: MemberRow, stuck: InFlightWork) -> None:
        context = self._context
        if stuck.request_of is not None:
            stuck.request_of.is_stuck = True
        logger.error(
            "%s has made no progress for max_processing_seconds=%g s: "
            "this client's shards go to other clients\n%s",
            stuck.what,
            context.config.max_processing_seconds,
            stuck.stack(),
            extra={"client_id": context.client_id},
        )
        await context.write(writes.leave(context.app, member, self._timestamp()))

    async def _wait_for_progress(self) -> None:
        while self._stuck_work() is not None:
            await asyncio.sleep(self._context.config.heartbeat_interval_seconds)

    def _config_ms(self) -> tuple[float, float]:
        config = self._context.config
        return config.heartbeat_interval_seconds, config.lease_duration_seconds

    def _timestamp(self) -> str:
        return rows.timestamp_text(self._context.clock.wall())


def _next_incarnation(before: LivenessRow | None) -> int:
    seen = before.incarnation if before else None
    return seen + 1 if type(seen) is int else 0
